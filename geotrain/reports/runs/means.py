"""Mean times of a recording's spans: per kind of action, and per link and direction."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from geotrain.plan import Plan
from geotrain.reports.words import KIND_WORDS, datacenters
from geotrain.timeline import Floats, Timeline
from geotrain.training.recording import Recording

_CLOSING = ("all-reduce", "optimizer")


@dataclass(frozen=True, kw_only=True)
class Sort:
    """A kind of action, or transfers from one data center to another or to itself."""

    kind: str = ""
    """In words; empty for transfers."""
    ends: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """forward; east → south; inside east."""
        source, target = self.ends
        return self.kind or (f"inside {source}" if source == target else f"{source} → {target}")


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The spans of one sort."""

    count: float
    """Per step, all pipelines together."""
    span_s: float
    """From begin to end, or to the arrival."""
    held_s: float
    """Of a transfer: on its channel, without the latency."""


def sorts(plan: Plan) -> list[Sort]:
    """All that can be: actions, then links over the WAN, then transfers inside data centers."""
    kinds = [Sort(kind=word) for word in (*KIND_WORDS.values(), *_CLOSING)]
    dcs = datacenters(plan)
    links = [Sort(ends=ends) for ends in product(dcs, dcs)]
    return [*kinds, *sorted(links, key=lambda link: link.ends[0] == link.ends[1])]


def span_means(side: Recording) -> dict[Sort, Mean]:
    """Over the steps that count; a sort without spans is left out."""
    totals: dict[Sort, Floats] = {}
    for _, timeline in side.steady:
        each = side.plan.num_pipelines // timeline.num_pipelines
        for sort, spans_s, held_s in _groups(side.plan, timeline):
            if len(spans_s):
                sums = np.array([len(spans_s), spans_s.sum(), held_s.sum()]) * each
                totals[sort] = totals.get(sort, 0.0) + sums
    return {
        sort: Mean(count=number / len(side.steady), span_s=spans_s / number, held_s=held_s / number)
        for sort, (number, spans_s, held_s) in ((sort, sums.tolist()) for sort, sums in totals.items())
    }


def _groups(plan: Plan, timeline: Timeline) -> Iterator[tuple[Sort, Floats, Floats]]:
    """Each sort, its spans' lengths, and their time on the channel."""
    done, moved = timeline.actions, timeline.transfers
    for kind, word in KIND_WORDS.items():
        spans_s = (done.end_s - done.start_s)[done.kind == kind]
        yield Sort(kind=word), spans_s, spans_s
    edges = (timeline.reduce_start_s, timeline.update_start_s, timeline.update_end_s)
    for word, (start_s, end_s) in zip(_CLOSING, pairwise(edges), strict=True):
        spans_s = np.repeat(end_s - start_s, timeline.num_pipelines)
        spans_s = spans_s[spans_s > 0]
        yield Sort(kind=word), spans_s, spans_s
    dcs = datacenters(plan)
    place = np.array([dcs.index(stage.dc) for stage in plan.stages])
    for source, target in product(range(len(dcs)), repeat=2):
        rows = (place[moved.source] == source) & (place[moved.target] == target)
        sort = Sort(ends=(dcs[source], dcs[target]))
        yield sort, (moved.arrive_s - moved.start_s)[rows], (moved.end_s - moved.start_s)[rows]
