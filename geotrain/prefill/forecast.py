"""When slots will be idle: the plan's bubbles, corrected by what training is seen to do.

Three corrections, from slow to quick: windows and the step's length follow the last steps; every step's beacon moves
all of its windows; and a notice that the producer of an input has begun says when that one window will end.
"""

import math

import numpy as np

from geotrain.prefill.bubbles import Bubbles
from geotrain.prefill.guard import Guard
from geotrain.timeline import Floats

_BLEND = 0.2
"""Weight of the last step in what is expected of the next."""

_CHANGE = 0.1
"""What is off by more than this share of the step is no accident: the next step is expected to be like the last."""


class Forecast:
    """Expected windows of every slot, and how far to keep away from their ends."""

    def __init__(self, bubbles: Bubbles, *, guard_s: float, quantile: float, fill: float = 1.0) -> None:
        self.bubbles = bubbles
        self.begin_s = 0.0
        self.step_s = bubbles.step_time_s
        self.start_s, self.end_s = bubbles.start_s.copy(), bubbles.end_s.copy()
        self.lead_s = np.full(len(self.end_s), np.nan)
        """From the start of what a window's end waits for to that end; nan where nothing can be seen coming."""
        self._fill = fill
        self._disturbed = 0
        """Steps, from the one under way, in whose way prefill may have been."""
        self._guard = Guard(bubbles.num_slots, least_s=guard_s, quantile=quantile)
        self._slot = np.repeat(np.arange(bubbles.num_slots), np.diff(bubbles.first))
        self.usable_end_s = self.end_s.copy()
        self.beacon(0.0)

    def beacon(self, now_s: float) -> None:
        """A step has begun."""
        self.begin_s = now_s
        self._guard.settle()
        filled = self.start_s + self._fill * (self.end_s - self.start_s)
        np.subtract(filled, self.guard_s[self._slot], out=self.usable_end_s)

    def learn(self, start_s: Floats, end_s: Floats, lead_s: Floats, step_s: float) -> None:
        """What a step's windows were."""
        much_s = _CHANGE * self.step_s
        # Ends that are late because of prefill must not invite more of it.
        later_s = math.inf if self._disturbed else much_s
        if not -much_s <= step_s - self.step_s <= later_s:
            much_s = later_s = 0.0
        self._disturbed = max(0, self._disturbed - 1)
        self.start_s = _toward(self.start_s, start_s, much_s, much_s)
        self.end_s = _toward(self.end_s, end_s, much_s, later_s)
        self.lead_s = np.where(np.isnan(self.lead_s), lead_s, _toward(self.lead_s, lead_s, much_s, later_s))
        self.step_s = float(_toward(self.step_s, step_s, much_s, later_s))

    def planned_end_s(self, window: int, begin_s: float) -> float:
        """When the window of the step that begins at `begin_s` should end, as far as earlier steps tell."""
        return begin_s + float(self.end_s[window])

    def end_s_of(self, window: int, begin_s: float, silent_since_s: float, started_s: float | None) -> float:
        """When it should end, as far as anybody knows by now; without the guard.

        `started_s`: when the producer of the awaited input began. If it had not at `silent_since_s`, the window lasts
        at least as long after that as the work and its way take.
        """
        lead_s = float(self.lead_s[window])
        if lead_s != lead_s:
            return self.planned_end_s(window, begin_s)
        return lead_s + (silent_since_s if started_s is None else started_s)

    @property
    def guard_s(self) -> Floats:
        """What each slot leaves free at the end of its windows."""
        return self._guard.time_s

    def ended(self, slot: int, early_s: float) -> None:
        """A window ended so much sooner than was expected when last asked; later is negative."""
        self._guard.ended(slot, early_s)

    def overran(self, slot: int, happened: bool) -> None:
        """Whether prefill was still there when training came back; a slot where that repeats keeps further away."""
        if happened:
            self._disturbed = 2  # a window may reach into the next step
        self._guard.overran(slot, happened)


def _toward(expected_s: Floats | float, seen_s: Floats | float, sooner_s: float, later_s: float) -> Floats:
    """All the way if it is off by more than that; else a part of it."""
    off_s = np.subtract(seen_s, expected_s)
    return np.asarray(expected_s + np.where((off_s < -sooner_s) | (off_s > later_s), 1.0, _BLEND) * off_s)
