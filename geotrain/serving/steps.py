"""What workers tell of training's steps, as the forecast learns it."""

from collections.abc import Sequence

import numpy as np

from geotrain.prefill.bubbles import Bubbles
from geotrain.prefill.forecast import Forecast
from geotrain.serving.messages import Step
from geotrain.timeline import Floats


class Steps:
    """Of all slots; they begin a step at about the same time."""

    def __init__(self, forecast: Forecast, rows: Sequence[int]) -> None:
        """`rows`: which of the forecast's slots each slot idles like."""
        self._forecast, self._rows = forecast, rows
        self._number: int | None = None
        self._begin_s = -np.inf
        self._before_s = np.nan
        self._told: dict[int, Step] = {}
        """By slot, what was said of the step before this one."""

    def heard(self, slot: int, step: Step) -> float | None:
        """When the step began, if this is the first to say so."""
        # Training that goes on from a checkpoint may begin the same step once more.
        if step.number == self._number and self._told.get(slot, step).begin_s == step.begin_s:
            self._told[slot] = step
            return None
        if step.begin_s <= self._begin_s:
            return None
        self._learn()
        goes_on = not step.first and self._number is not None and step.number == self._number + 1
        self._before_s = self._begin_s if goes_on else np.nan
        self._number, self._begin_s = step.number, step.begin_s
        self._told = {slot: step}
        return step.begin_s

    @property
    def length_s(self) -> float:
        """Of the step before this one; nan if nobody saw it."""
        return self._begin_s - self._before_s

    def _learn(self) -> None:
        """Of the windows that were told with this step, and ended in the one before."""
        if np.isnan(self.length_s) or not self._told:
            return
        bubbles, forecast = self._forecast.bubbles, self._forecast
        start_s, end_s = (np.full((len(self._told), len(forecast.start_s)), np.nan) for _ in range(2))
        for number, (slot, step) in enumerate(self._told.items()):
            if step.complete:
                _fill(bubbles, self._rows[slot], step, self._before_s, forecast.end_s, start_s[number], end_s[number])
        forecast.learn(
            _mean(start_s, forecast.start_s), _mean(end_s, forecast.end_s), forecast.lead_s.copy(), self.length_s
        )


def _fill(
    bubbles: Bubbles, row: int, step: Step, begin_s: float, expected_s: Floats, start_s: Floats, end_s: Floats
) -> None:
    """What is not told did not happen: windows without length where they were expected to end."""
    mine = bubbles.of(row)
    last = mine.stop - mine.start - 1
    start_s[mine] = end_s[mine] = expected_s[mine]
    for window in step.windows:
        # The marks behind the actions are the end of the step, and the next one's begin, which is this one's too.
        at = mine.start + (window.mark if window.mark <= last else 0)
        start_s[at], end_s[at] = window.start_s - begin_s, window.end_s - begin_s


def _mean(rows: Floats, otherwise: Floats) -> Floats:
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, rows, 0.0).sum(axis=0) / np.maximum(count, 1), otherwise)
