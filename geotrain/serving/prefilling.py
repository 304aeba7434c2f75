"""Prefill on one slot: chunks of prompts through its layers, a unit at a time, while training leaves it alone.

Runs in a thread of its own and knows no sockets. Of the tasks that have their input the first comes first; before every
unit of it the gate is asked anew, so training never waits for longer than a unit.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from geotrain.device import Device
from geotrain.errors import RunError
from geotrain.model.generate import choice
from geotrain.serving.beside import Beside
from geotrain.serving.gate import Gate
from geotrain.serving.measuring import measured
from geotrain.serving.messages import (
    Error,
    FirstToken,
    Forget,
    Hidden,
    Kv,
    Measure,
    Measured,
    Message,
    Report,
    Task,
)
from geotrain.serving.shard import Chunk, Pass, Shard
from geotrain.serving.tensors import pack, unpack
from geotrain.serving.windows import LOOK_S
from geotrain.serving.wire import Buffer

_IDLE_S = 0.25
"""Without tasks it looks so often what training is doing."""
_FORGOTTEN = 4096
_SAME_WINDOW_S = 1e-3
_FORGIVING = 0.98
"""What is left, after a look in vain, of the belief that the next unit takes as long as the last."""

Send = Callable[[str | None, Message, Buffer], None]
"""To an address, or to serve; any thread may call."""


class Given(NamedTuple):
    """A message for this slot."""

    message: Message
    payload: bytearray


@dataclass(eq=False)
class _Work:
    """A task under way."""

    task: Task
    x: torch.Tensor
    run: Pass | None = None
    last_s: float = 0.0
    """Time of its last unit, or less where that has kept it waiting."""
    pieces: list[tuple[float, float]] = field(default_factory=list)
    waited_s: float = 0.0


class Prefilling:
    """One slot's thread."""

    def __init__(self, shard: Shard, gate: Gate, send: Send, *, device: Device | None = None) -> None:
        """`device`: emulated; a unit holds it for as long as it should take."""
        self._shard, self._gate, self._send, self._device = shard, gate, send, device
        self._inbox: deque[Given] = deque()
        self._tasks: dict[tuple[int, int], Task] = {}
        """By booking and chunk, in order."""
        self._inputs: dict[tuple[int, int], torch.Tensor] = {}
        self._work: _Work | None = None
        self._held: dict[int, set[str]] = {}
        """Keys and values here, by booking."""
        self._forgotten: deque[int] = deque(maxlen=_FORGOTTEN)
        self._beside = Beside(gate, lambda message: send(None, message, b""))
        self._ended = False

    def give(self, message: Message, payload: bytearray) -> None:
        """Something for this slot; any thread may call."""
        self._inbox.append(Given(message, payload))
        self._gate.wake()

    @property
    def held_tokens(self) -> int:
        """For whose keys and values memory is taken; any thread may ask."""
        return self._shard.tokens_held

    def end(self) -> None:
        """Leave `run`; any thread may call."""
        self._ended = True
        self._gate.wake()

    def run(self) -> None:
        """Until it is ended."""
        while not self._ended:
            self._read()
            self._beside.look()
            work = self._next()
            if work is None:
                with self._beside.wasting("nothing to do"):
                    self._gate.sleep(_IDLE_S)
            elif self._may(work):
                try:
                    self._unit(work)
                except RunError as error:
                    self._fail(work.task, str(error))

    # Messages

    def _read(self) -> None:
        while self._inbox:
            message, payload = self._inbox.popleft()
            match message:
                case Task():
                    if message.booking not in self._forgotten:
                        self._tasks[message.booking, message.chunk] = message
                        if message.tensor is not None:
                            self._arrived(message.booking, message.chunk, unpack(message.tensor, payload))
                case Hidden():
                    self._arrived(message.booking, message.chunk, unpack(message.tensor, payload))
                case Forget():
                    for booking in message.bookings:
                        self._forget(booking)
                case Measure(points=points):
                    unit_s = measured(self._shard, self._gate, points, ended=lambda: self._ended)
                    self._send(None, Measured(unit_s=unit_s), b"")
                case _:
                    self._send(None, Error(message=f"{message.kind}: is not for a worker"), b"")

    def _arrived(self, booking: int, chunk: int, x: torch.Tensor) -> None:
        if booking not in self._forgotten:
            self._inputs[booking, chunk] = x

    def _forget(self, booking: int) -> None:
        self._forgotten.append(booking)
        for key in [key for key in self._tasks if key[0] == booking]:
            del self._tasks[key]
        for key in [key for key in self._inputs if key[0] == booking]:
            del self._inputs[key]
        for name in self._held.pop(booking, ()):
            self._shard.release(name)
        if self._work is not None and self._work.task.booking == booking:
            self._work = None

    def _fail(self, task: Task, message: str) -> None:
        self._forget(task.booking)
        for part in task.slices:
            self._send(None, Error(request=part.request, message=message), b"")

    # Work

    def _next(self) -> _Work | None:
        """What has begun, or else the first task that has its input."""
        if self._work is None:
            key = next((key for key in self._tasks if key in self._inputs), None)
            self._work = None if key is None else _Work(self._tasks[key], self._inputs[key])
        return self._work

    def _may(self, work: _Work) -> bool:
        """Whether its next unit may run; waits a little."""
        unit_s = work.last_s or work.task.seldom_s
        if self._gate.open_for(unit_s):
            return True
        start_s = time.monotonic()
        with self._beside.wasting("too short"):
            opened = not self._inbox and self._gate.wait(unit_s, LOOK_S)
        work.waited_s += time.monotonic() - start_s
        if not opened:
            # Held up once is not for ever: no window might be as long as that.
            work.last_s = max(min(work.last_s, work.task.seldom_s), work.last_s * _FORGIVING)
        return opened

    def _unit(self, work: _Work) -> None:
        task = work.task
        if work.run is None:
            work.run = self._shard.run(self._chunks(task, work.x), range(*task.layers))
            if task.place == 0 and task.chunk == 0:
                self._report(work, "started")
        start_s = time.monotonic()
        if self._device is None:
            layer = next(work.run)
        else:
            with self._device.held(task.unit_s):
                start_s = time.monotonic()
                layer = next(work.run)
        self._gate.ran(start_s)
        end_s = time.monotonic()
        work.last_s = end_s - start_s
        if work.pieces and start_s - work.pieces[-1][1] < _SAME_WINDOW_S:
            work.pieces[-1] = work.pieces[-1][0], end_s
        else:
            work.pieces.append((start_s, end_s))
        self._hand_over(task, layer)
        if work.run.out:
            self._finish(work, work.run.out)

    def _chunks(self, task: Task, x: torch.Tensor) -> list[Chunk]:
        held = self._held.setdefault(task.booking, set())
        chunks = []
        for part, mine in zip(task.slices, torch.split(x, [part.tokens for part in task.slices]), strict=True):
            name = f"{task.booking}/{part.request}"
            if name not in held:
                self._shard.start(name, part.prompt_tokens)
                held.add(name)
            ends = part.position + part.tokens == part.prompt_tokens
            chunks.append(Chunk(request=name, x=mine, position=part.position, is_last=ends))
        return chunks

    def _hand_over(self, task: Task, layer: int) -> None:
        """Keys and values of a layer go to the decoder as soon as they are there."""
        for part in task.slices:
            end = part.position + part.tokens
            tensor, payload = pack(self._shard.kv(f"{task.booking}/{part.request}", layer, part.position, end))
            kv = Kv(request=part.request, layer=layer, position=part.position, tensor=tensor)
            self._send(task.decoder, kv, payload)

    def _finish(self, work: _Work, out: list[torch.Tensor | None]) -> None:
        task = work.task
        if task.next is not None:
            tensor, payload = pack(torch.cat([x for x in out if x is not None]))
            self._send(task.next, Hidden(booking=task.booking, chunk=task.chunk, tensor=tensor), payload)
        else:
            for part, logits in zip(task.slices, out, strict=True):
                if logits is not None and part.sampling is not None:
                    s = part.sampling
                    token = choice(logits, temperature=s.temperature, top_p=s.top_p, seed=s.seed, number=0)
                    self._send(task.decoder, FirstToken(request=part.request, token=token), b"")
        self._report(work, "done")
        self._tasks.pop((task.booking, task.chunk))
        self._inputs.pop((task.booking, task.chunk))
        self._work = None

    def _report(self, work: _Work, what: str) -> None:
        task = work.task
        report = Report.model_validate(
            {
                "booking": task.booking,
                "place": task.place,
                "chunk": task.chunk,
                "what": what,
                "now_s": time.monotonic(),
                "pieces": tuple(work.pieces),
                "waited_s": work.waited_s,
            }
        )
        self._send(None, report, b"")
