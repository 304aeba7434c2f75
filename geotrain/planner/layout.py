"""One way to lay a job out over a cluster: every choice a plan needs except its schedule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, permutations

from geotrain.cluster import Cluster
from geotrain.plan import Plan, Replica, ScheduleName, Stage
from geotrain.workload import Job

_FEW_STAGES = 6

Placement = tuple[tuple[int, int], ...]
"""Data centers in the order of the pipeline, by number, each with its stages."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Data centers are numbered as in the cluster file."""

    tensor_parallel: int
    microbatch: int
    placement: Placement
    layers: tuple[int, ...]
    """Per stage, along the pipeline."""
    pipelines_per_cell: int
    cells: int
    replicas: tuple[tuple[int, int], ...] = ()
    """Data centers that hold the same pipelines again, each with its cells."""

    @property
    def num_pipelines(self) -> int:
        """In all data centers."""
        return self.pipelines_per_cell * (self.cells + sum(cells for _, cells in self.replicas))

    @property
    def kind(self) -> tuple[bool, frozenset[int]]:
        """Which way across the WAN, and which data centers."""
        return bool(self.replicas), frozenset(dc for dc, _ in (*self.placement, *self.replicas))

    def neighbours(self) -> Iterator["Layout"]:
        """One layer from one stage to another: any two of a few, or else ends, extremes and borders of data centers."""
        stages: Sequence[int] = range(len(self.layers))
        if len(stages) > _FEW_STAGES:
            borders = accumulate(count for _, count in self.placement[:-1])
            by_layers = sorted(stages, key=lambda stage: self.layers[stage])
            stages = sorted({0, stages[-1], by_layers[0], by_layers[-1], *borders})
        for source, target in permutations(stages, 2):
            if self.layers[source] > 1:
                layers = list(self.layers)
                layers[source] -= 1
                layers[target] += 1
                yield replace(self, layers=tuple(layers))

    def plan(self, cluster: Cluster, job: Job, schedule: ScheduleName, prefill_room_bytes: float = 0.0) -> Plan:
        """The plan; not validated again, a layout fits by construction."""
        names = [dc.name for dc in cluster.datacenters]
        where = [names[dc] for dc, stages in self.placement for _ in range(stages)]
        return Plan.model_construct(
            cluster=cluster,
            job=with_microbatch(job, self.microbatch),
            tensor_parallel=self.tensor_parallel,
            stages=[Stage.model_construct(dc=dc, layers=n) for dc, n in zip(where, self.layers, strict=True)],
            pipelines_per_cell=self.pipelines_per_cell,
            cells=self.cells,
            replicas=[Replica.model_construct(dc=names[dc], cells=cells) for dc, cells in self.replicas],
            schedule=schedule,
            prefill_room_bytes=prefill_room_bytes,
        )


def with_microbatch(job: Job, size: int) -> Job:
    """The same batch in microbatches of another size."""
    if size == job.microbatch:
        return job
    number = None if job.microbatches is None else job.microbatches * job.microbatch // size
    return job.model_copy(update={"microbatch": size, "microbatches": number})
