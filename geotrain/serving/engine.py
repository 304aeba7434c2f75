"""The controller's decisions carried out by workers and a decoder, on one event loop.

A request waits, is booked, is prefilled, and is decoded; whatever happens to a process meanwhile, it ends exactly once.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence

from geotrain.errors import InputError
from geotrain.prefill.booking import Booking, Command, Refuse, Run
from geotrain.prefill.controller import Controller
from geotrain.prefill.request import End
from geotrain.serving.bookings import Bookings
from geotrain.serving.contract import Broken, Busy, Piece, Prompt
from geotrain.serving.desk import Desk
from geotrain.serving.messages import (
    Cancel,
    Error,
    Forget,
    Ready,
    Report,
    Step,
    Token,
    Tokens,
    Windows,
)
from geotrain.serving.metrics import Metrics
from geotrain.serving.requests import Live, Requests
from geotrain.serving.room import SOON_S
from geotrain.serving.steps import Steps
from geotrain.serving.tasks import start, tasks
from geotrain.serving.watching import Watch
from geotrain.serving.wire import Frame

_TICK_S = 0.1
_AT_ONCE = 2


class LiveEngine:
    """Whoever owns it connects processes, and tells it who is there and what they say."""

    def __init__(
        self,
        model: str,
        controller: Controller,
        steps: Steps,
        *,
        names: Sequence[str],
        present: Mapping[str, Ready],
        chunk_tokens: int,
        requests: Requests,
        desk: Desk,
        watch: Watch,
        metrics: Metrics,
    ) -> None:
        """`names`: of the workers, in the order of the controller's slots; `present`: who is there already."""
        self._model, self._controller, self._steps = model, controller, steps
        self._names, self._chunk_tokens = names, chunk_tokens
        self._requests, self._desk, self._watch, self._metrics = requests, desk, watch, metrics
        self._slot = {name: slot for slot, name in enumerate(names)}
        self._addresses = {name: ready.address for name, ready in present.items()}
        self._decoder = next((name for name in present if name not in self._slot), None)
        self._room_tokens = 0 if self._decoder is None else present[self._decoder].room_tokens
        self._bookings = Bookings()
        self._timer: asyncio.TimerHandle | None = None
        self._said: deque[Token] = deque()
        """By the decoder, and not handed out yet."""
        now_s = time.monotonic()
        for slot, name in enumerate(names):
            controller.vacate(slot, vacant=not watch.trains(name))
            if name not in present:
                controller.lost(slot, now_s)

    # Requests

    def ready(self) -> str | None:
        """Why no request can be taken now, or None."""
        if self._decoder is None:
            return "the decoder is not there"
        return None if self._controller.able else "the workers are not there"

    def capacity_rps(self, tokens: int) -> float:
        """How many prompts of that length can be served."""
        return self._controller.capacity_rps(tokens)

    def admit(self, prompt: Prompt) -> Live:
        """One more; Busy or InputError, at once or as the first thing that it hears, if that cannot be."""
        live = self._requests.add(prompt, self._room_tokens)
        self._obey(self._controller.arrive(live.request, time.monotonic()))
        return live

    def leave(self, live: Live) -> None:
        """It has ended, or its client is gone."""
        if not self._requests.remove(live):
            return
        if live.at_decoder and self._decoder is not None:
            self._desk.send(self._decoder, Cancel(requests=(live.prompt.id,)))
        if live.booking is not None:
            self._through(live)
        elif not live.is_answered:
            self._controller.cancel(live.request.id)

    def _fail(self, live: Live, error: Exception) -> None:
        live.say(error)
        self.leave(live)

    # Decisions

    async def tick(self) -> None:
        """Now and then: until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._give_up()
            waiting = self._controller.waiting
            self._metrics.set_load(self._model, running=self._requests.under_way - waiting, waiting=waiting)

    def _give_up(self) -> None:
        now_s = time.monotonic()
        self._controller.catch_up(now_s)
        void, commands = self._controller.give_up(now_s)
        self._void(void)
        self._obey(commands)
        self._advance()

    def _advance(self) -> None:
        self._obey(self._controller.advance(time.monotonic()))

    def _obey(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Run):
                self._run(command.booking)
            else:
                for live in self._requests.awaited([command.request]):
                    self._fail(live, _error(command))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wake_s := self._controller.wake_s) < math.inf:
            pause_s = max(0.0, wake_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._advance)

    def _run(self, booking: Booking) -> None:
        here = self._requests.awaited(booking.requests)
        if not here or self._decoder is None:
            self._controller.drop(booking.number, time.monotonic())
            for live in here:
                self._fail(live, Broken("the decoder was lost"))
            return
        self._bookings.add(booking, here)
        for live in here:
            if not live.at_decoder:
                live.at_decoder = True
                self._desk.send(self._decoder, *start(live.prompt))
        names = [self._names[slot] for slot in booking.slots]
        for place, task, ids in tasks(
            booking,
            [live.prompt for live in here],
            chunk_tokens=self._chunk_tokens,
            addresses=[self._addresses[name] for name in names],
            decoder=self._addresses[self._decoder],
        ):
            self._desk.send(names[place], task, ids)

    def _void(self, bookings: Sequence[Booking]) -> None:
        """Nobody works on these any more; their requests may be booked again."""
        for booking in bookings:
            if self._bookings.void(booking.number):
                self._forget(booking)

    def _forget(self, booking: Booking) -> None:
        for slot in booking.slots:
            self._desk.send(self._names[slot], Forget(bookings=(booking.number,)))

    def _through(self, live: Live) -> None:
        """Its booking has one request less to wait for."""
        if (booking := self._bookings.through(live)) is None:
            return
        self._forget(booking)
        now_s, over = time.monotonic(), self._controller.done if live.is_answered else self._controller.drop
        over(booking.number, now_s)
        if now_s >= self._controller.wake_s:
            self._advance()

    # What processes say

    def joined(self, name: str, ready: Ready) -> None:
        """A worker, or the decoder, has its weights, and nothing of what one with its name had before."""
        self.gone(name)
        self._addresses[name] = ready.address
        if name not in self._slot:
            self._decoder, self._room_tokens = name, ready.room_tokens
        else:
            self._controller.back(self._slot[name], time.monotonic())
            self._advance()

    def gone(self, name: str) -> None:
        """A worker, or the decoder, is lost."""
        if self._addresses.pop(name, None) is None:
            return
        self._watch.gone(name)
        if name not in self._slot:
            self._decoder = None
            for live in self._requests.at_decoder():
                self._fail(live, Broken("the decoder was lost"))
        else:
            void, commands = self._controller.lost(self._slot[name], time.monotonic())
            self._void(void)
            self._obey(commands)

    def heard(self, name: str, frame: Frame) -> None:
        """A message of a worker, or of the decoder."""
        match frame.message:
            case Tokens() as message:
                idle = not self._said
                self._said.extend(message.tokens)
                if idle:
                    self._hand_out()
            case Report() as message:
                self._reported(name, message)
            case Step() as message:
                self._stepped(self._slot[name], message)
            case Windows() as message:
                self._watched(name, message)
            case Error(request=str(request), message=words):
                if (live := self._requests.find(request)) is not None:
                    self._fail(live, Broken(words))
            case _:
                pass

    def _hand_out(self) -> None:
        """Some tokens at a time: who asks anew does not wait until everybody has been answered."""
        for _ in range(min(_AT_ONCE, len(self._said))):
            token = self._said.popleft()
            if (live := self._requests.find(token.request)) is not None:
                self._spoke(live, Piece(text=token.text, token=token.token, finish=token.finish))
        if self._said:
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _spoke(self, live: Live, piece: Piece) -> None:
        now_s = time.monotonic()
        if not live.is_answered:
            live.first_s = now_s
            if not math.isnan(live.started_s):
                self._metrics.observe_prefill(self._model, now_s - live.started_s)
            if live.booking is not None:
                self._through(live)
        live.say(piece)
        if piece.finish is not None:
            live.at_decoder = False
            self._metrics.observe_decode(self._model, now_s - live.first_s)
            self.leave(live)

    def _reported(self, name: str, report: Report) -> None:
        if report.what == "started":
            for live in self._bookings.waiting(report.booking):
                live.started_s = report.now_s
                self._metrics.observe_queue(self._model, report.now_s - live.request.arrival_s)
        else:
            self._watch.worked(name, report)

    def _stepped(self, slot: int, step: Step) -> None:
        if (begin_s := self._steps.heard(slot, step)) is None:
            return
        self._watch.stepped(step.number, begin_s, self._steps.length_s)
        self._controller.step_began(begin_s)
        self._give_up()

    def _watched(self, name: str, now: Windows) -> None:
        if self._watch.watched(name, now):
            self._controller.vacate(self._slot[name], vacant=not now.trains)
            self._advance()


def _error(refusal: Refuse) -> Exception:
    if refusal.reason == "slot lost":
        return Broken("the prefill worker was lost")
    if refusal.reason == "busy" or refusal.end is End.FAILED:
        # Who waited too long has lost nothing but time.
        return Busy("no bubble in time", retry_after_s=refusal.retry_after_s or SOON_S)
    return InputError(f"a prompt of {refusal.request.input_tokens} tokens: {refusal.reason} for the GPUs here")
