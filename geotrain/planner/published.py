"""The published planner (Atlas, arXiv 2411.14458, Algorithm 1), as its own function: the baseline ours must beat.

For every number of cells, data centers in order of size take as many stages as they have room for; pipeline time plus
all-reduce time says how good that is. Tensor parallelism, microbatch and number of stages are given.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from geotrain.network import ring_all_reduce_s
from geotrain.planner.layout import Layout, Placement
from geotrain.planner.slots import Slots


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A layout and what the closed form makes of it."""

    layout: Layout
    microbatches_per_s: float
    """Of all pipelines together."""


def published(slots: Slots, num_stages: int) -> list[Estimate]:
    """What the algorithm finds, best first: a data center may end with no stage."""
    by_size = sorted(range(len(slots.numbers)), key=lambda dc: -slots.numbers[dc])
    found: dict[tuple[Placement, int, int], Estimate] = {}
    for pooled in {1, _pipelines_per_cell(slots, num_stages, by_size)}:
        for cells in range(sum(slots.numbers) // (num_stages * pooled), 0, -1):
            if slots.divides(cells * pooled):
                placement = _by_size(slots, by_size, num_stages, cells * pooled)
                alike = placement, pooled, slots.num_microbatches(cells * pooled)
                # The same pipelines but fewer of them are never better.
                if placement and alike not in found and (best := _estimate(slots, placement, pooled, cells)):
                    found[alike] = best
    return sorted(found.values(), key=lambda estimate: -estimate.microbatches_per_s)


def _by_size(slots: Slots, by_size: list[int], num_stages: int, num_pipelines: int) -> Placement:
    """As many stages as there is room for, in one data center after the other; nothing if that is too few."""
    left, placement = num_stages, []
    for dc in by_size:
        stages = min(left, slots.numbers[dc] // num_pipelines)
        left -= stages
        if stages:
            placement.append((dc, stages))
    return () if left else tuple(placement)


def _estimate(slots: Slots, placement: Placement, pooled: int, cells: int) -> Estimate | None:
    for layers in slots.partitions(placement, cells * pooled):
        layout = Layout(
            tensor_parallel=slots.tensor_parallel,
            microbatch=slots.job.microbatch,
            placement=placement,
            layers=layers,
            pipelines_per_cell=pooled,
            cells=cells,
        )
        seconds = _pipeline_s(slots, layout) + _all_reduce_s(slots, layout)
        work = cells * pooled * slots.num_microbatches(cells * pooled)
        return Estimate(layout=layout, microbatches_per_s=work / seconds if seconds else math.inf)
    return None


def _pipelines_per_cell(slots: Slots, num_stages: int, by_size: list[int]) -> int:
    """As many as make a pooled transfer as short as a forward, and no more than there are."""
    if len(by_size) < 2:
        return 1
    layers = math.ceil(slots.job.model.layers / num_stages)
    forward_s = slots.cost(by_size[0], layers, is_first=False, is_last=False).forward_s
    ratio = slots.transfer_s(by_size[0], by_size[1]) / forward_s if forward_s else 1.0
    return max(1, min(math.ceil(ratio), sum(slots.numbers) // num_stages))


def _pipeline_s(slots: Slots, layout: Layout) -> float:
    """Microbatches at the pace of the slowest stage or pair, and what the WAN adds to fill and drain."""
    where = [dc for dc, stages in layout.placement for _ in range(stages)]
    last = len(where) - 1
    times = [
        slots.load(dc, 1, is_first=stage == 0, is_last=stage == last).seconds(layout.layers[stage])
        for stage, dc in enumerate(where)
    ]
    microbatches = slots.num_microbatches(layout.pipelines_per_cell * layout.cells)
    wan, pace = 0.0, max(times)
    for (here, _), (there, _) in pairwise(layout.placement):
        pace = max(pace, slots.transfer_s(here, there))
        each = slots.transfer_s(here, there) / layout.pipelines_per_cell
        wan += 2 * each + (slots.link(here, there).rtt_s or 0.0) + (layout.pipelines_per_cell - 1) * each
    return (microbatches - 1) * pace + sum(times) + wan


def _all_reduce_s(slots: Slots, layout: Layout) -> float:
    copies = layout.pipelines_per_cell * layout.cells
    slowest = 0.0
    first = 0
    for dc, stages in layout.placement:
        layers = max(layout.layers[first : first + stages])
        size = slots.cost(dc, layers, is_first=first == 0, is_last=False).gradient_bytes
        slowest = max(slowest, ring_all_reduce_s(copies, size, slots.cluster.datacenters[dc]))
        first += stages
    return slowest
