"""Layers over stages: as even in time as whole layers allow, within each stage's memory."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise


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
