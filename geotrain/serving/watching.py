"""What becomes of training's bubbles and steps, as workers tell it: into metrics and journal."""

import math
from collections import deque
from statistics import median

from geotrain.serving.journal import Journal
from geotrain.serving.messages import Report, Windows
from geotrain.serving.metrics import Metrics

_REMEMBERED = 64
_ENOUGH = 3


class Change:
    """How much longer training's steps are with prefill beside them than without."""

    def __init__(self) -> None:
        self._lengths_s: dict[bool, deque[float]] = {filled: deque(maxlen=_REMEMBERED) for filled in (False, True)}

    def add(self, length_s: float, *, filled: bool) -> None:
        """A step, and whether prefill ran in it."""
        self._lengths_s[filled].append(length_s)

    @property
    def share(self) -> float | None:
        """Of a step; None until there are some of both."""
        if min(map(len, self._lengths_s.values())) < _ENOUGH:
            return None
        return median(self._lengths_s[True]) / median(self._lengths_s[False]) - 1


class Watch:
    """Over all slots."""

    def __init__(self, metrics: Metrics, journal: Journal) -> None:
        self._metrics, self._journal = metrics, journal
        self._told: dict[str, Windows] = {}
        self._change, self._filled = Change(), False

    def trains(self, name: str) -> bool:
        """Whether training runs beside that worker, as far as it has said."""
        return name in self._told and self._told[name].trains

    def worked(self, name: str, report: Report) -> None:
        """A chunk is through a slot."""
        self._filled = True
        self._metrics.observe_wait_for_bubble(report.waited_s)
        self._journal.worked(name, report)

    def stepped(self, number: int, begin_s: float, length_s: float) -> None:
        """A step has begun; `length_s` of the one before, nan if nobody saw it."""
        self._journal.stepped(number, begin_s)
        if not math.isnan(length_s):
            self._metrics.observe_step(length_s)
            self._change.add(length_s, filled=self._filled)
            if (share := self._change.share) is not None:
                self._metrics.set_step_change(share)
        self._filled = False

    def gone(self, name: str) -> None:
        """That worker is lost: the next one counts from 0, but for what training has offered."""
        if (told := self._told.get(name)) is not None:
            mine = {"used_s": 0.0, "wasted_s": {}, "overruns": 0, "overrun_s": 0.0, "guard_s": 0.0}
            self._told[name] = told.model_copy(update=mine)

    def watched(self, name: str, now: Windows) -> bool:
        """A slot's windows until now; True if this is news of whether training is there."""
        before = self._told.get(name)
        self._told[name] = now
        news = before is None or before.trains != now.trains
        before = before or Windows(trains=False, offered_s=0, used_s=0, overruns=0, overrun_s=0, guard_s=0)
        # Training that was started again counts from 0.
        offered_s = now.offered_s - before.offered_s if now.offered_s >= before.offered_s else now.offered_s
        self._metrics.add_bubble("offered", offered_s)
        self._metrics.add_bubble("used", max(0.0, now.used_s - before.used_s))
        for reason, wasted_s in now.wasted_s.items():
            self._metrics.add_bubble("wasted", max(0.0, wasted_s - before.wasted_s.get(reason, 0.0)), reason=reason)
        overruns, late_s = now.overruns - before.overruns, now.overrun_s - before.overrun_s
        self._metrics.add_overruns(max(0, overruns), max(0.0, late_s))
        self._metrics.set_guard(max(told.guard_s for told in self._told.values()))
        self._journal.watched(name, now)
        return news
