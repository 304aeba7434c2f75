"""Prefill's side of the window file: whether a unit of work may run beside training now.

Training comes first: a unit runs while the slot is idle, if it should be over, with the guard, before training is
expected back. Where no training runs, the slot is one big bubble; so it is where training is overdue for long.
"""

import math
import os
import select
import time
from contextlib import suppress
from pathlib import Path

from geotrain.errors import InputError
from geotrain.prefill.guard import Guard
from geotrain.serving.windows import LOOK_S, Past, Reader, Record, State, open_pipe, paths

_OVERDUE_STEPS = 3
"""Training that computes longer than so many steps should last has stopped."""
_PIPE_BYTES = 1 << 16


class Gate:
    """One slot's. Not for several threads."""

    def __init__(self, directory: Path, name: str, *, guard_s: float, quantile: float, silent_s: float = 5.0) -> None:
        """`silent_s`: a slot that waits for so long after its window should have ended is free until it stirs."""
        self._reader = Reader(directory, name)
        self._guard = Guard(1, least_s=guard_s, quantile=quantile)
        self._silent_s = silent_s
        wake = paths(directory, name)[1]
        try:
            self._pipe = open_pipe(wake)
        except OSError as error:
            raise InputError(f"{wake}: cannot be opened: {error.strerror}") from None
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.POLLIN)
        self.record: Record | None = None
        """What training said when last asked; None if there was none."""
        self._born_s = math.nan
        self._num_past = 0
        self._step: int | None = None
        self._used: int | None = None
        """The last window that was used and not overrun."""
        self._past: list[Past] = []
        self._missed = False
        self.overruns = 0
        self.overrun_s = self.used_s = 0.0

    def look(self) -> float:
        """Until when the slot is free: inf without training, -inf while it computes. The guard is not counted in."""
        record = self.record = self._reader.read()
        if record is None or record.state is not State.RUNNING:
            return math.inf
        self._learn(record)
        now_s = time.monotonic()
        if record.is_open:
            if now_s - max(record.start_s, record.end_s) > self._silent_s:
                return math.inf
            return max(record.end_s, now_s + record.lead_s) if record.lead_s else record.end_s
        patience_s = max(self._silent_s, _OVERDUE_STEPS * record.length_s)
        return math.inf if now_s - record.changed_s > patience_s else -math.inf

    def open_for(self, unit_s: float) -> bool:
        """Whether a unit of that length may begin."""
        return time.monotonic() + unit_s + self.guard_s <= self.look()

    def wait(self, unit_s: float, deadline_s: float) -> bool:
        """Until it may; False if it still may not when the time is up."""
        until_s = time.monotonic() + deadline_s
        while not self.open_for(unit_s):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            self.sleep(min(left_s, LOOK_S))
        return True

    def sleep(self, most_s: float) -> None:
        """Until training stirs, somebody calls `wake`, or for so long."""
        for file, _ in self._poll.poll(math.ceil(most_s * 1e3)):
            with suppress(BlockingIOError):
                os.read(file, _PIPE_BYTES)

    def wake(self) -> None:
        """End `sleep`; any thread may."""
        os.eventfd_write(self._bell, 1)

    def take_past(self) -> tuple[list[Past], bool]:
        """Windows that are over and have not been taken yet, and whether that is all of them."""
        past, missed = self._past, self._missed
        self._past, self._missed = [], False
        return past, not missed

    def ran(self, start_s: float) -> bool:
        """A unit that began then is over now; whether training wanted the slot back in the meantime."""
        self.look()
        now_s, record = time.monotonic(), self.record
        self.used_s += now_s - start_s
        if record is None or record.state is not State.RUNNING:
            return False
        overran = record.over_s > start_s
        if overran:
            self.overruns += 1
            self.overrun_s += now_s - record.over_s
            self._guard.overran(0, True)
            self._used = None
            return True
        if self._used not in (None, record.num_windows):
            self._guard.overran(0, False)
        self._used = record.num_windows
        return False

    @property
    def guard_s(self) -> float:
        """How far units keep away from the end of windows."""
        return float(self._guard.time_s[0])

    @property
    def offered_s(self) -> float:
        """How long the slot has been idle in all, since training began."""
        if self.record is None:
            return 0.0
        return self.record.idle_s + (time.monotonic() - self.record.start_s if self.record.is_open else 0.0)

    def close(self) -> None:
        """Listen no more."""
        self._reader.close()
        os.close(self._pipe)
        os.close(self._bell)

    def _learn(self, record: Record) -> None:
        """Of windows that ended since, looked at or not; the guard changes from step to step."""
        if record.born_s != self._born_s:
            self._born_s, self._num_past, self._used = record.born_s, 0, None
            self._past.clear()
        new = record.num_past - self._num_past
        self._num_past = record.num_past
        self._missed |= new > len(record.past)
        for past in record.past[max(0, len(record.past) - new) :]:
            self._past.append(past)
            # What nobody expected to last at all says nothing.
            if past.expected_s > past.start_s:
                self._guard.ended(0, past.expected_s - past.end_s)
        if record.step != self._step:
            self._step = record.step
            self._guard.settle()
