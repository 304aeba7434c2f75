"""Prompts in, tokens out: the controller's decisions carried out by workers and a decoder, on one event loop.

A request waits, is booked, is prefilled, and is decoded; whatever happens to a process meanwhile, it ends exactly once.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from geotrain.errors import InputError
from geotrain.prefill.booking import Booking, Command, Refuse, Run
from geotrain.prefill.controller import Controller
from geotrain.prefill.request import End, Request
from geotrain.prefill.settings import Settings
from geotrain.serving.contract import Broken, Busy, Draining, Piece, Prompt, rounded
from geotrain.serving.desk import Desk
from geotrain.serving.journal import Journal
from geotrain.serving.messages import (
    Cancel,
    Error,
    Forget,
    Report,
    Step,
    Token,
    Tokens,
    Windows,
)
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard
from geotrain.serving.outside import Outside
from geotrain.serving.steps import Steps
from geotrain.serving.tasks import start, tasks
from geotrain.serving.watching import Watch
from geotrain.serving.wire import Frame

_TICK_S = 0.1
_SOON_S = 1.0
_AT_ONCE = 2


@dataclass(eq=False, kw_only=True)
class _Live:
    """A request from its arrival to its end."""

    prompt: Prompt
    request: Request
    pieces: asyncio.Queue[Piece | Exception] = field(default_factory=asyncio.Queue)
    booking: int | None = None
    at_decoder: bool = False
    started_s: float = math.nan
    """When its first unit of prefill began."""
    first_s: float = math.nan
    """When its first token came."""

    @property
    def room_tokens(self) -> int:
        """At the decoder."""
        return rounded(len(self.prompt.tokens) + self.prompt.sampling.max_tokens)


@dataclass(eq=False)
class _Booked:
    booking: Booking
    waiting: set[str]
    """Requests whose first token has not come yet."""


class LiveEngine:
    """An `Engine`; whoever owns it connects processes, and tells it who is there."""

    def __init__(
        self,
        card: ModelCard,
        *,
        names: Sequence[str],
        settings: Settings,
        metrics: Metrics,
        journal: Journal,
    ) -> None:
        """`names`: of the workers, in the order of the controller's slots."""
        self._card, self._names, self._settings = card, names, settings
        self._metrics, self._watch = metrics, Watch(metrics, journal)
        self._slot = {name: slot for slot, name in enumerate(names)}
        self.desk: Desk
        self._controller: Controller | None = None
        self._steps: Steps
        self._addresses: dict[str, str] = {}
        self._decoder: str | None = None
        self._room_tokens = self._reserved_tokens = 0
        self._draining = False
        self._numbers = count(1)
        self._live: dict[str, _Live] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self._by_number: dict[int, _Live] = {}
        self._booked: dict[int, _Booked] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._outside = Outside()
        self._said: deque[Token] = deque()
        """By the decoder, and not handed out yet."""

    # For the HTTP side

    @property
    def models(self) -> Sequence[ModelCard]:
        """The one that is served."""
        return [self._card]

    def ready(self) -> str | None:
        """Why no request can be taken now, or None."""
        if self._draining:
            return "the service is about to end"
        if self._decoder is None:
            return "the decoder is not there"
        if self._controller is None or not self._addresses:
            return "the workers are not there"
        return None

    @property
    def under_way(self) -> int:
        """Requests that have not ended."""
        return len(self._live)

    @property
    def reserved_tokens(self) -> int:
        """At the decoder, for those."""
        return self._reserved_tokens

    def drain(self) -> None:
        """Take no more requests."""
        self._draining = True

    async def idle(self, deadline_s: float) -> None:
        """Until none is under way, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._empty.wait()

    async def submit(self, prompt: Prompt) -> AsyncGenerator[Piece, None]:
        """As the contract has it."""
        live = None
        try:
            try:
                live = self._admit(prompt)
            finally:
                self._metrics.observe_admission(self._card.name, time.monotonic() - prompt.arrival_s)
            while True:
                piece = await live.pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                if piece.finish is not None:
                    return
        except Busy as busy:
            hoped_rps = 1.0 if self._controller is None else self._controller.capacity_rps(len(prompt.tokens))
            retry_s = self._outside.turned_away(time.monotonic(), busy.retry_after_s, hoped_rps)
            raise Busy(str(busy), retry_after_s=retry_s) from None
        finally:
            if live is not None:
                self._leave(live)

    def _admit(self, prompt: Prompt) -> _Live:
        if self._draining:
            raise Draining("the service is about to end")
        if (reason := self.ready()) is not None:
            raise Busy(reason, retry_after_s=_SOON_S)
        assert self._controller is not None
        now_s = time.monotonic()
        request = Request(
            id=next(self._numbers),
            arrival_s=prompt.arrival_s,
            input_tokens=len(prompt.tokens),
            output_tokens=prompt.sampling.max_tokens,
            tenant=prompt.tenant,
            priority=prompt.priority,
        )
        live = _Live(prompt=prompt, request=request)
        if live.room_tokens > self._room_tokens:
            asked, room = live.room_tokens, self._room_tokens
            raise InputError(f"prompt and answer take {asked} tokens at the decoder, and it has room for {room}")
        if self._reserved_tokens + live.room_tokens > self._room_tokens:
            raise Busy("the decoder has no room for another answer", retry_after_s=_SOON_S)
        self._reserved_tokens += live.room_tokens
        self._live[prompt.id] = self._by_number[request.id] = live
        self._empty.clear()
        self._obey(self._controller.arrive(request, now_s))
        return live

    def _leave(self, live: _Live) -> None:
        """It has ended, or its client is gone."""
        if self._live.pop(live.prompt.id, None) is None:
            return
        del self._by_number[live.request.id]
        if not self._live:
            self._empty.set()
        self._reserved_tokens -= live.room_tokens
        if live.at_decoder and self._decoder is not None:
            self.desk.send(self._decoder, Cancel(requests=(live.prompt.id,)))
        if live.booking is not None:
            self._through(live)
        elif self._controller is not None and math.isnan(live.first_s):
            self._controller.cancel(live.request.id)

    # Decisions

    def begin(self, controller: Controller, steps: Steps) -> None:
        """From now on requests are taken, wherever workers are."""
        self._controller, self._steps = controller, steps
        now_s = time.monotonic()
        for slot, name in enumerate(self._names):
            controller.vacate(slot, vacant=not self._watch.trains(name))
            if name not in self._addresses:
                controller.lost(slot, now_s)

    async def tick(self) -> None:
        """Now and then: until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._controller is not None:
                self._give_up()
                waiting = self._controller.waiting
                self._metrics.set_load(self._card.name, running=len(self._live) - waiting, waiting=waiting)

    def _give_up(self) -> None:
        assert self._controller is not None
        now_s = time.monotonic()
        self._controller.catch_up(now_s)
        void, commands = self._controller.give_up(now_s)
        self._void(void)
        self._obey(commands)
        self._advance()

    def _advance(self) -> None:
        assert self._controller is not None
        self._obey(self._controller.advance(time.monotonic()))

    def _obey(self, commands: Sequence[Command]) -> None:
        assert self._controller is not None
        for command in commands:
            if isinstance(command, Run):
                self._run(command.booking)
            else:
                for live in self._awaited([command.request]):
                    self._fail(live, _error(command))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wake_s := self._controller.wake_s) < math.inf:
            pause_s = max(0.0, wake_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._advance)

    def _awaited(self, requests: Sequence[Request]) -> list[_Live]:
        """Those that still wait for their first token: others of their batch may stream already."""
        lives = (self._by_number.get(request.id) for request in requests)
        return [live for live in lives if live is not None and math.isnan(live.first_s)]

    def _run(self, booking: Booking) -> None:
        assert self._controller is not None
        here = self._awaited(booking.requests)
        names = [self._names[slot] for slot in booking.slots]
        if not here or self._decoder is None:
            self._controller.drop(booking.number, time.monotonic())
            for live in here:
                self._fail(live, Broken("the decoder was lost"))
            return
        self._booked[booking.number] = _Booked(booking, {live.prompt.id for live in here})
        for live in here:
            live.booking = booking.number
            if not live.at_decoder:
                live.at_decoder = True
                self.desk.send(self._decoder, *start(live.prompt))
        for place, task, ids in tasks(
            booking,
            [live.prompt for live in here],
            chunk_tokens=self._settings.chunk_tokens,
            addresses=[self._addresses[name] for name in names],
            decoder=self._addresses[self._decoder],
        ):
            self.desk.send(names[place], task, ids)

    def _void(self, bookings: Sequence[Booking]) -> None:
        """Nobody works on these any more; their requests may be booked again."""
        for booking in bookings:
            if (booked := self._booked.pop(booking.number, None)) is not None:
                for name in booked.waiting:
                    self._live[name].booking = None
                self._forget(booking)

    def _forget(self, booking: Booking) -> None:
        for slot in booking.slots:
            self.desk.send(self._names[slot], Forget(bookings=(booking.number,)))

    def _through(self, live: _Live) -> None:
        """Its booking has one request less to wait for."""
        assert self._controller is not None and live.booking is not None
        booked = self._booked[live.booking]
        booked.waiting.discard(live.prompt.id)
        live.booking = None
        if not booked.waiting:
            now_s, number = time.monotonic(), booked.booking.number
            del self._booked[number]
            self._forget(booked.booking)
            if math.isnan(live.first_s):
                self._controller.drop(number, now_s)
            else:
                self._controller.done(number, now_s)
            if now_s >= self._controller.wake_s:
                self._advance()

    def _fail(self, live: _Live, error: Exception) -> None:
        live.pieces.put_nowait(error)
        self._leave(live)

    # What processes say

    def joined(self, name: str, address: str, *, room_tokens: int = 0) -> None:
        """A worker, or the decoder, has its weights, and nothing of what one with its name had before."""
        self.gone(name)
        self._addresses[name] = address
        if name not in self._slot:
            self._decoder, self._room_tokens = name, room_tokens
        elif self._controller is not None:
            self._controller.back(self._slot[name], time.monotonic())
            self._advance()

    def gone(self, name: str) -> None:
        """A worker, or the decoder, is lost."""
        if self._addresses.pop(name, None) is None:
            return
        self._watch.gone(name)
        if name not in self._slot:
            self._decoder = None
            for live in [live for live in self._live.values() if live.at_decoder]:
                self._fail(live, Broken("the decoder was lost"))
        elif self._controller is not None:
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
                if (live := self._live.get(request)) is not None:
                    self._fail(live, Broken(words))
            case _:
                pass

    def _hand_out(self) -> None:
        """Some tokens at a time: who asks anew does not wait until everybody has been answered."""
        for _ in range(min(_AT_ONCE, len(self._said))):
            token = self._said.popleft()
            if (live := self._live.get(token.request)) is not None:
                self._spoke(live, Piece(text=token.text, token=token.token, finish=token.finish))
        if self._said:
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _spoke(self, live: _Live, piece: Piece) -> None:
        now_s = time.monotonic()
        if math.isnan(live.first_s):
            live.first_s = now_s
            self._outside.taken(now_s)
            if not math.isnan(live.started_s):
                self._metrics.observe_prefill(self._card.name, now_s - live.started_s)
            if live.booking is not None:
                self._through(live)
        live.pieces.put_nowait(piece)
        if piece.finish is not None:
            live.at_decoder = False
            self._metrics.observe_decode(self._card.name, now_s - live.first_s)
            self._leave(live)

    def _reported(self, name: str, report: Report) -> None:
        if (booked := self._booked.get(report.booking)) is None:
            requests: list[_Live] = []
        else:
            requests = [self._live[one] for one in booked.waiting]
        if report.what == "started":
            for live in requests:
                live.started_s = report.now_s
                self._metrics.observe_queue(self._card.name, report.now_s - live.request.arrival_s)
            return
        self._watch.worked(name, report)

    def _stepped(self, slot: int, step: Step) -> None:
        if self._controller is None or (begin_s := self._steps.heard(slot, step)) is None:
            return
        self._watch.stepped(step.number, begin_s, self._steps.length_s)
        self._controller.step_began(begin_s)
        self._give_up()

    def _watched(self, name: str, now: Windows) -> None:
        if self._watch.watched(name, now) and self._controller is not None:
            self._controller.vacate(self._slot[name], vacant=not now.trains)
            self._advance()


def _error(refusal: Refuse) -> Exception:
    if refusal.reason == "slot lost":
        return Broken("the prefill worker was lost")
    if refusal.reason == "busy" or refusal.end is End.FAILED:
        # Who waited too long has lost nothing but time.
        return Busy("no bubble in time", retry_after_s=refusal.retry_after_s or _SOON_S)
    return InputError(f"a prompt of {refusal.request.input_tokens} tokens: {refusal.reason} for the GPUs here")
