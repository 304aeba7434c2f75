"""All layouts of a job on a cluster that are worth a look, in two steps: groups with a quick floor, then layouts.

A group fixes the degrees: tensor parallel, microbatch, stages, pipelines. Its layouts differ in where the stages are
and how pipelines form cells.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from geotrain.cluster import Cluster
from geotrain.plan import Plan, ScheduleName
from geotrain.planner.ask import Ask
from geotrain.planner.layout import Layout, Placement, with_microbatch
from geotrain.planner.placement import placements
from geotrain.planner.slots import Slots
from geotrain.workload import Job

_MOST_POOLED = 12
"""Pipelines per cell that are tried."""
_FEW_STAGES = 16
"""Up to here every number of stages is tried, beyond only those that make the longest stage shorter."""
_FEW_PIPELINES = 32
"""Below it every number of pipelines is tried where cost is weighed against time."""
_FEW_DATACENTERS = 5
"""Up to here every set of them is tried as homes of whole pipelines."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Degrees of parallelism; `across`: data parallel across data centers, pipelines inside each."""

    tensor_parallel: int
    microbatch: int
    num_stages: int
    num_pipelines: int
    across: bool


@dataclass(frozen=True)
class Space:
    """The layouts of a job on a cluster."""

    cluster: Cluster
    job: Job
    ask: Ask

    def groups(self) -> Iterator[Group]:
        """Every choice of degrees that has room."""
        for tensor_parallel in self.tensor_parallels():
            for microbatch in self._microbatch_sizes():
                slots = self.slots(tensor_parallel, microbatch)
                for num_stages in self.stage_counts(slots):
                    for across in self._ways:
                        counts = self._replica_counts if across else self._pipeline_counts
                        # Of plans that cost the same, those of more pipelines are faster: they come first.
                        for num_pipelines in sorted(counts(slots, num_stages), reverse=self.ask.goal == "cost"):
                            yield Group(
                                tensor_parallel=tensor_parallel,
                                microbatch=microbatch,
                                num_stages=num_stages,
                                num_pipelines=num_pipelines,
                                across=across,
                            )

    def layouts(self, group: Group) -> Iterator[Layout]:
        """What the group stands for, as far as it fits in memory."""
        slots = self.slots(group.tensor_parallel, group.microbatch)
        if group.across:
            yield from self._replicated(slots, group)
            return
        room = [have // group.num_pipelines for have in slots.numbers]
        for placement in placements(group.num_stages, room, slots.measures, self._twins):
            for layers in slots.partitions(placement, group.num_pipelines):
                for pooled in _cell_sizes(placement, group.num_pipelines):
                    layout = Layout(
                        tensor_parallel=group.tensor_parallel,
                        microbatch=group.microbatch,
                        placement=placement,
                        layers=layers,
                        pipelines_per_cell=pooled,
                        cells=group.num_pipelines // pooled,
                    )
                    if self.allows(layout):
                        yield layout

    def allows(self, layout: Layout) -> bool:
        """Whether the question lets it cross the WAN the way it does."""
        return self.ask.across != "data" or len(layout.placement) == 1

    @property
    def _ways(self) -> tuple[bool, ...]:
        """Whether data centers hold whole pipelines; staying in one data center is always allowed."""
        return (False,) if self.ask.across == "pipeline" else (False, True)

    def plan(self, layout: Layout, schedule: ScheduleName) -> Plan:
        """The layout as a plan that leaves the room that was asked for."""
        return layout.plan(self.cluster, self.job, schedule, self.ask.prefill_room_bytes(layout.tensor_parallel))

    def slots(self, tensor_parallel: int, microbatch: int) -> Slots:
        """The cluster cut into slots of that size."""
        key = tensor_parallel, microbatch
        if key not in self._known_slots:
            job, room_bytes = with_microbatch(self.job, microbatch), self.ask.prefill_room_bytes(tensor_parallel)
            self._known_slots[key] = Slots(self.cluster, job, tensor_parallel, room_bytes)
        return self._known_slots[key]

    @cached_property
    def _known_slots(self) -> dict[tuple[int, int], Slots]:
        return {}

    @cached_property
    def is_measured(self) -> bool:
        """Whether times of a stage were measured: then its layers do not change them."""
        return Slots(self.cluster, self.job, 1).is_measured

    def tensor_parallels(self) -> list[int]:
        """GPUs per slot: what divides a node and the model's heads; one, where stages were measured."""
        if self.is_measured:
            return [1]
        sizes = {dc.gpus_per_node for dc in self.cluster.datacenters if dc.nodes}
        heads = self.job.model.heads
        return [n for n in range(1, max(sizes, default=0) + 1) if heads % n == 0 and any(s % n == 0 for s in sizes)]

    def _microbatch_sizes(self) -> list[int]:
        """Powers of two that divide the batch."""
        job = self.job
        if self.is_measured:
            return [job.microbatch]
        batch = job.global_batch or job.microbatch * (job.microbatches or 1)
        sizes = {job.microbatch, *(2**n for n in range(6))}
        return sorted(size for size in sizes if batch % size == 0)

    def stage_counts(self, slots: Slots) -> list[int]:
        """Stages of a pipeline; a measured stage is one layer, unless a number is asked for."""
        layers, most = self.job.model.layers, min(self.job.model.layers, sum(slots.numbers))
        if isinstance(self.job.profile.stage, list):
            wanted = {len(self.job.profile.stage)}
        elif self.ask.stages is not None:
            wanted = {self.ask.stages}
        elif self.is_measured:
            wanted = {most}
        else:
            wanted = {math.ceil(layers / per_stage) for per_stage in range(1, layers + 1)}
            wanted |= set(range(1, _FEW_STAGES + 1))
        return sorted(n for n in wanted if 1 <= n <= most)

    @cached_property
    def _twins(self) -> list[list[int]]:
        """Per data center: those before it that could change places with it and nobody would notice."""
        dcs = self.cluster.datacenters
        slots = self.slots(1, self.job.microbatch)

        def alike(a: int, b: int) -> bool:
            others = [n for n in range(len(dcs)) if n not in (a, b)]
            return (
                dcs[a].model_copy(update={"name": dcs[b].name}) == dcs[b]
                and slots.link(a, b) == slots.link(b, a)
                and all(slots.link(a, n) == slots.link(b, n) and slots.link(n, a) == slots.link(n, b) for n in others)
            )

        return [[a for a in range(b) if alike(a, b)] for b in range(len(dcs))]

    def _replicated(self, slots: Slots, group: Group) -> Iterator[Layout]:
        """The whole pipeline in each of several data centers with the same GPUs."""
        whole = [have // group.num_stages for have in slots.numbers]
        for chosen in self._with_equal_gpus(whole):
            placement = ((chosen[0], group.num_stages),)
            for counts in self._deals(group.num_pipelines, chosen, whole):
                for layers in slots.partitions(placement, group.num_pipelines):
                    yield Layout(
                        tensor_parallel=group.tensor_parallel,
                        microbatch=group.microbatch,
                        placement=placement,
                        layers=layers,
                        pipelines_per_cell=1,
                        cells=counts[0],
                        replicas=tuple(zip(chosen[1:], counts[1:], strict=True)),
                    )

    def _deals(self, number: int, chosen: tuple[int, ...], whole: list[int]) -> list[tuple[int, ...]]:
        """Pipelines per data center: as even as room allows; where cost counts, also as many as fit in the cheapest."""
        room = [whole[dc] for dc in chosen]
        if not len(room) <= number <= sum(room):
            return []
        deals = [_dealt(number, room)]
        if self.ask.is_limited:
            counts, left = [1] * len(room), number - len(room)
            for place in sorted(range(len(room)), key=lambda n: self.cluster.datacenters[chosen[n]].price_per_gpu_hour):
                more = min(left, room[place] - 1)
                counts[place] += more
                left -= more
            deals.append(tuple(counts))
        return list(dict.fromkeys(deals))

    def _with_equal_gpus(self, whole: list[int]) -> Iterator[tuple[int, ...]]:
        """Sets of two or more data centers with the same GPUs and room for a pipeline, largest first."""
        dcs = self.cluster.datacenters
        usable = sorted((dc for dc, pipelines in enumerate(whole) if pipelines), key=lambda dc: (-whole[dc], dc))
        kinds: list[list[int]] = []
        for dc in usable:
            alike = next((kind for kind in kinds if dcs[kind[0]].gpu == dcs[dc].gpu), None)
            if alike is None:
                kinds.append([dc])
            else:
                alike.append(dc)
        for kind in kinds:
            for size in range(2, len(kind) + 1):
                few = len(kind) <= _FEW_DATACENTERS
                for chosen in combinations(kind, size) if few else [tuple(kind[:size])]:
                    if all(set(self._twins[dc]) & set(kind) <= set(chosen) for dc in chosen):
                        yield chosen

    def _pipeline_counts(self, slots: Slots, num_stages: int) -> list[int]:
        """Numbers of pipelines that have room and may be the best.

        Of the same pipelines, more are faster and, as they wait for each other's gradients, dearer. For the least time
        these are one, which waits for no other, and the numbers where one more would change what a data center can
        hold; for the least cost also those of one cell; where one of the two is limited, any.
        """

        def has_room(number: int) -> bool:
            return number > 0 and sum(have // number for have in slots.numbers) >= num_stages

        most = sum(slots.numbers) // num_stages
        if slots.job.global_batch is not None:
            return [n for n in _dividing(slots.job.global_batch // slots.job.microbatch, most) if has_room(n)]
        steps = {1} | {have // stages for have in slots.numbers for stages in range(1, num_stages + 1)}
        largest = _rounded(filter(has_room, steps))
        if self.ask.is_limited:
            return sorted({*largest, *_up_to(max(largest, default=0))})
        one_cell = range(1, _MOST_POOLED + 1) if self.ask.goal == "cost" else ()
        return sorted({*largest, *filter(has_room, one_cell)})

    def _replica_counts(self, slots: Slots, num_stages: int) -> list[int]:
        """Numbers of pipelines that have room as whole ones in two or more data centers."""
        whole = [have // num_stages for have in slots.numbers]
        most = {sum(whole[dc] for dc in chosen) for chosen in self._with_equal_gpus(whole)}
        if slots.job.global_batch is not None:
            batch = slots.job.global_batch // slots.job.microbatch
            return [n for n in _dividing(batch, max(most, default=0)) if n > 1]
        return sorted(most | set(_up_to(max(most, default=0))) - {1}) if self.ask.is_limited else sorted(most)


def group_of(layout: Layout) -> Group:
    """The one it is in."""
    return Group(
        tensor_parallel=layout.tensor_parallel,
        microbatch=layout.microbatch,
        num_stages=len(layout.layers),
        num_pipelines=layout.num_pipelines,
        across=bool(layout.replicas),
    )


def _dividing(batch: int, most: int) -> Iterator[int]:
    return (n for n in range(1, min(most, batch) + 1) if batch % n == 0)


def _up_to(most: int) -> Iterator[int]:
    """Every number while they are few, then steps of at most 6%: there, one more changes the cost per token little."""
    return (n for n in range(1, most + 1) if n < _FEW_PIPELINES or n % 2 ** (n // _FEW_PIPELINES).bit_length() == 0)


def _rounded(counts: Iterable[int]) -> list[int]:
    """Also a few less, where that makes cells of equal size."""
    return sorted({n - n % pooled for n in counts for pooled in (1, 2, 3, 4, 6, 8) if n >= pooled})


def _cell_sizes(placement: Placement, num_pipelines: int) -> list[int]:
    """Pipelines per cell: one without a WAN. The WAN's rate does not count: what is tried over a slow one is tried over
    a fast one too, so that more bandwidth does not lead to a worse plan."""
    most = min(_MOST_POOLED, num_pipelines) if len(placement) > 1 else 1
    return [n for n in range(1, most + 1) if num_pipelines % n == 0]


def _dealt(number: int, room: list[int]) -> tuple[int, ...]:
    """That many pipelines over data centers, at least one each, as even as room allows."""
    counts = [1] * len(room)
    left = number - len(room)
    while left:
        open_places = [place for place, most in enumerate(room) if counts[place] < most]
        each = max(1, min(left // len(open_places), min(room[place] - counts[place] for place in open_places)))
        for place in open_places[:left]:
            counts[place] += each
            left -= each
    return tuple(counts)
