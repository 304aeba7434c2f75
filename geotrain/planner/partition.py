"""Layers over stages: as even in time as whole layers allow, within each stage's memory."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
from numba import njit

from geotrain.timeline import Floats

_PRECISE = 1e-4
_MOST_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Load:
    """What layers cost on one stage; both grow by the same with every layer."""

    base_s: float
    """Embedding or head."""
    layer_s: float
    """Forward, recompute and backward of one microbatch."""
    most_layers: int
    """That memory allows."""

    def seconds(self, layers: int) -> float:
        """Time per microbatch with that many layers."""
        return self.base_s + layers * self.layer_s


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A stage of a whole step: when it can begin, and how long it then has work to do."""

    entry_s: float
    """From the stage before it."""
    return_s: float
    """Back to it."""
    work: Load
    """All microbatches, and what follows the last."""
    urgent: Load
    """All microbatches without their weight gradients: then the last one's way back begins."""
    first: Load
    """Until the first microbatch can go on."""
    back: Load
    """Of the last microbatch on its way back."""


def balanced(num_layers: int, legs: Sequence[Leg]) -> Iterator[tuple[int, ...]]:
    """Partitions that end the work of all stages at about the same time; later ones begin later."""
    begin_s = [0.0] * len(legs)
    seen: set[tuple[int, ...]] = set()
    for _ in range(_MOST_ROUNDS):
        loads = [replace(leg.work, base_s=leg.work.base_s + s) for leg, s in zip(legs, begin_s, strict=True)]
        layers = partition(num_layers, loads)
        if layers is None or layers in seen:
            return
        seen.add(layers)
        yield layers
        now_s = 0.0
        for stage, (leg, number) in enumerate(zip(legs, layers, strict=True)):
            begin_s[stage] = now_s = now_s + leg.entry_s
            now_s += leg.first.seconds(number)


def soonest_end_s(num_layers: int, legs: Sequence[Leg], queue_s: float, end_s: float, within_s: float) -> float:
    """The end of all work in the best of all partitions, or less; `within_s` if that is less.

    `queue_s` is how long the last microbatch waits for the ones before it on the wire, `end_s` the least that follows
    its way back to the first stage.
    """
    rows = [
        [leg.entry_s, leg.return_s, leg.work.most_layers]
        + [time for load in (leg.work, leg.urgent, leg.first, leg.back) for time in (load.base_s, load.layer_s)]
        for leg in legs
    ]
    return float(_soonest_end_s(num_layers, np.array(rows, dtype=np.float64), queue_s, end_s, within_s))


@njit(cache=True)
def _soonest_end_s(num_layers: int, legs: Floats, queue_s: float, end_s: float, within_s: float) -> float:
    if not _ends_by(within_s, num_layers, legs, queue_s, end_s):
        return within_s
    low, high = 0.0, within_s
    step_s = _PRECISE * within_s  # most are close to the limit
    while high - low > _PRECISE * high:
        middle = max((low + high) / 2, high - step_s)
        step_s *= 4
        if _ends_by(middle, num_layers, legs, queue_s, end_s):
            high = middle
        else:
            low = middle
    return low


@njit(cache=True)
def _ends_by(limit_s: float, num_layers: int, legs: Floats, queue_s: float, end_s: float) -> bool:
    """Whether some partition may end all work by then: for each number of layers before a stage, the least until it can
    begin, and the least way back from it."""
    begin_s, home_s = np.full(num_layers + 1, np.inf), np.full(num_layers + 1, np.inf)
    begin_s[0] = home_s[0] = 0.0
    for stage in range(len(legs)):
        entry_s, return_s, most, work_s, work_each, urgent_s, urgent_each, first_s, first_each, back_s, back_each = (
            legs[stage]
        )
        after_s, farther_s = np.full(num_layers + 1, np.inf), np.full(num_layers + 1, np.inf)
        for before in range(num_layers):
            start_s, way_s = begin_s[before] + entry_s, home_s[before] + return_s
            for layers in range(1, min(int(most), num_layers - before) + 1):
                done_s = start_s + work_s + layers * work_each
                if max(done_s, start_s + urgent_s + layers * urgent_each + way_s + end_s) > limit_s:
                    break
                now = before + layers
                after_s[now] = min(after_s[now], start_s + first_s + layers * first_each)
                farther_s[now] = min(farther_s[now], way_s + back_s + layers * back_each)
        begin_s, home_s = after_s, farther_s
    return bool(begin_s[num_layers] + home_s[num_layers] + queue_s + end_s <= limit_s)


def every_partition(num_layers: int, loads: Sequence[Load]) -> Iterator[tuple[int, ...]]:
    """All that fit, at least one layer each."""
    for cuts in combinations(range(1, num_layers), len(loads) - 1):
        layers = tuple(end - start for start, end in pairwise((0, *cuts, num_layers)))
        if all(number <= load.most_layers for number, load in zip(layers, loads, strict=True)):
            yield layers


def partition(num_layers: int, loads: Sequence[Load]) -> tuple[int, ...] | None:
    """At least one layer each; the longest stage is as short as possible. None if they do not fit.

    One layer after the other goes where the result is shortest, which is best for costs that only grow.
    """
    if num_layers < len(loads) or any(load.most_layers < 1 for load in loads):
        return None
    layers = [1] * len(loads)
    queue = [(load.seconds(2), stage) for stage, load in enumerate(loads) if load.most_layers > 1]
    heapq.heapify(queue)
    for _ in range(num_layers - len(loads)):
        if not queue:
            return None
        _, stage = queue[0]
        layers[stage] += 1
        if layers[stage] < loads[stage].most_layers:
            heapq.heapreplace(queue, (loads[stage].seconds(layers[stage] + 1), stage))
        else:
            heapq.heappop(queue)
    return tuple(layers)
