"""When slots will be idle: the plan's bubbles, corrected by what training is seen to do.

Three corrections, from slow to quick: windows and the step's length follow the last steps; every step's beacon moves
all of its windows; and a notice that the producer of an input has begun says when that one window will end.
"""

import numpy as np

from geotrain.prefill.bubbles import Bubbles
from geotrain.prefill.guard import Guard
from geotrain.timeline import Floats

_BLEND = 0.2
"""Weight of the last step in what is expected of the next."""


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
        self.start_s += _BLEND * (start_s - self.start_s)
        self.end_s += _BLEND * (end_s - self.end_s)
        self.lead_s = np.where(np.isnan(self.lead_s), lead_s, self.lead_s + _BLEND * (lead_s - self.lead_s))
        self.step_s += _BLEND * (step_s - self.step_s)

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
        self._guard.overran(slot, happened)
