"""When a slot has nothing to do, and until when. Knows not what for.

A step is a row of marks: the start of each action, when everybody has told of the step, when the next one begins. The
script says when they should come, the last steps correct it, and how late this one is shifts what is left of it.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from geotrain.training.script import Cue

_STEPS = 5
"""Steps that are remembered."""


class Listener(Protocol):
    """Who wants to know. Called in the midst of training: must neither wait nor raise. Times are `time.monotonic`'s."""

    def step(self, number: int, begin_s: float, length_s: float) -> None:
        """A step has begun, and should last so long."""

    def idle(self, mark: int, now_s: float, end_s: float, lead_s: float) -> None:
        """The slot waits for that mark, until `end_s` if things come as they should; said again when more is known.

        `lead_s` above 0: that is still to come, and then the slot will be idle for so long at least.
        """

    def busy(self, now_s: float) -> None:
        """It goes on."""

    def close(self) -> None:
        """Training is over."""


class Nobody:
    """Listens to nothing."""

    def step(self, number: int, begin_s: float, length_s: float) -> None:
        """So what."""

    def idle(self, mark: int, now_s: float, end_s: float, lead_s: float) -> None:
        """So what."""

    def busy(self, now_s: float) -> None:
        """So what."""

    def close(self) -> None:
        """So what."""


class Idling:
    """One slot, step after step."""

    def __init__(self, cues: Sequence[Cue], *, step_time_s: float, listener: Listener) -> None:
        self.told, self.next = len(cues), len(cues) + 1
        """The marks that are no action's."""
        self._listener = listener
        script_s = np.array([*(cue.start_s for cue in cues), step_time_s, step_time_s])
        self._seen_s = deque([script_s], maxlen=_STEPS)
        """Of each step, every mark since its begin."""
        self._expected_s: list[float] = script_s.tolist()
        self._reached_s: list[float] = []
        self._begin_s = self._late_s = 0.0
        self._waits = self._goes_on = False
        self._coming_s: float | None = None
        self._leads_s: dict[int, deque[float]] = {}
        """By mark, from when what is waited for began to arrive to when it was there, in the last steps."""

    def begin(self, step: int, now_s: float) -> None:
        """The next step begins; the slot may wait already."""
        if self._reached_s:
            if self._goes_on:
                self._reached_s[self.next] = now_s - self._begin_s
            self._seen_s.append(np.array(self._reached_s))
            # Of two in the middle the sooner: to count on too little idle time is the smaller mistake.
            rows = np.sort(self._seen_s, axis=0)
            self._expected_s = rows[(len(rows) - 1) // 2].tolist()
        self._reached_s = self._expected_s.copy()
        self._begin_s, self._late_s, self._goes_on = now_s, 0.0, True
        self._listener.step(step, now_s, self._expected_s[self.next])

    def wait(self, mark: int, coming_s: float | None = None) -> None:
        """There is nothing to do until that mark; for `next`, until the first action of the next step.

        `coming_s`: since when what it waits for has been arriving. Said at once, for a listener takes the slot at once.
        """
        end_s = self._begin_s + self._late_s + self._expected_s[mark]
        if mark == self.next:
            end_s += self._expected_s[0]
        self._waits, self._coming_s = True, coming_s
        lead_s = self._lead_s(mark)
        if coming_s is not None and lead_s:
            end_s, lead_s = coming_s + lead_s, 0.0
        self._listener.idle(mark, time.monotonic(), end_s, lead_s)

    def foresee(self, mark: int, coming_s: float) -> None:
        """What the mark waits for has begun to arrive."""
        self._coming_s = coming_s
        if lead_s := self._lead_s(mark):
            self._listener.idle(mark, time.monotonic(), coming_s + lead_s, 0.0)

    def _lead_s(self, mark: int) -> float:
        """The least of late; 0 if it is not known."""
        return min(self._leads_s.get(mark, ()), default=0.0)

    def reach(self, mark: int, now_s: float) -> None:
        """The mark has come; if it was waited for, what follows will be as late as it is."""
        self._reached_s[mark] = now_s - self._begin_s
        if self._waits:
            self._late_s = self._reached_s[mark] - self._expected_s[mark]
            self._waits = False
            if self._coming_s is not None:
                self._leads_s.setdefault(mark, deque(maxlen=_STEPS)).append(now_s - self._coming_s)
            self._listener.busy(now_s)

    def pause(self) -> None:
        """Something comes that belongs to no step, such as a checkpoint."""
        self._goes_on = False
        if self._waits:
            self._waits = False
            self._listener.busy(time.monotonic())
