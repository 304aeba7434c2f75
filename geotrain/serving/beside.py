"""What a worker tells serve of the training beside it: its steps, and what became of their windows."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from geotrain.serving.gate import Gate
from geotrain.serving.messages import Message, Step, Window, Windows
from geotrain.serving.windows import State

_TELL_S = 0.5
"""How often it says what became of the windows."""


class Beside:
    """Of one slot."""

    def __init__(self, gate: Gate, tell: Callable[[Message], None]) -> None:
        self._gate, self._tell = gate, tell
        self._step: tuple[float, int] | None = None
        """Birth of the training process, and its step."""
        self._wasted_s: defaultdict[str, float] = defaultdict(float)
        self._trains: bool | None = None
        self._told_s = 0.0

    @contextmanager
    def wasting(self, reason: str) -> Iterator[None]:
        """Idle time of the slot that passes in the block is lost."""
        before_s = self._gate.offered_s
        yield
        self._gate.look()
        self._wasted_s[reason] += max(0.0, self._gate.offered_s - before_s)

    def look(self) -> None:
        """And tell what is new."""
        self._gate.look()
        record = self._gate.record
        now_s, trains = time.monotonic(), record is not None and record.state is State.RUNNING
        if record is not None and trains and (record.born_s, record.step) != self._step:
            first = self._step is None or self._step[0] != record.born_s
            self._step = record.born_s, record.step
            past, complete = self._gate.take_past()
            self._tell(
                Step(
                    number=record.step,
                    begin_s=record.begin_s,
                    length_s=record.length_s,
                    windows=tuple(Window(mark=one.mark, start_s=one.start_s, end_s=one.end_s) for one in past),
                    complete=complete,
                    first=first,
                )
            )
        if trains != self._trains or now_s - self._told_s > _TELL_S:
            self._trains, self._told_s = trains, now_s
            self._tell(
                Windows(
                    trains=trains,
                    offered_s=self._gate.offered_s,
                    used_s=self._gate.used_s,
                    wasted_s=dict(self._wasted_s),
                    overruns=self._gate.overruns,
                    overrun_s=self._gate.overrun_s,
                    guard_s=self._gate.guard_s,
                )
            )
