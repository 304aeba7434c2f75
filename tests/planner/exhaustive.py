"""Every plan of a small space, simulated: what the planner's answer is compared with. Shares no code with it."""

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations, product

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.plan import Plan, ScheduleName
from geotrain.simulation import simulate
from geotrain.workload import Job


def every_rate(cluster: Cluster, job: Job, schedule: ScheduleName) -> list[tuple[float, float]]:
    """Of every plan that runs, seconds and money per token."""
    found = []
    for plan in every_plan(cluster, job, schedule):
        try:
            result = simulate(plan)
        except InputError:
            continue
        tokens = plan.tokens_per_step
        found.append((result.step_time_s / tokens, result.cost_per_billion_tokens / 1e9))
    return found


def every_plan(cluster: Cluster, job: Job, schedule: ScheduleName) -> Iterator[Plan]:
    """All that the files allow: degrees, cells, places, layers per stage, and copies in other data centers."""
    dcs = [dc.name for dc in cluster.datacenters]
    gpus = max(dc.num_gpus for dc in cluster.datacenters)
    per_node = max(dc.gpus_per_node for dc in cluster.datacenters)
    for tensor_parallel, size in product(range(1, per_node + 1), (1, 2, 4)):
        sized = _with_size(job, size)
        if sized is None:
            continue
        for num_stages in range(1, job.model.layers + 1):
            for where in _places(dcs, num_stages):
                for pooled, cells in product(range(1, gpus + 1), repeat=2):
                    homes = {} if len(set(where)) > 1 else {where[0]: cells}
                    for replicas in _replicas(dcs, homes, gpus):
                        yield from _plans(cluster, sized, schedule, tensor_parallel, where, pooled, cells, replicas)


def _with_size(job: Job, size: int) -> Job | None:
    if job.global_batch is not None:
        return None if job.global_batch % size else job.model_copy(update={"microbatch": size})
    samples = job.microbatch * (job.microbatches or 0)
    return None if samples % size else job.model_copy(update={"microbatch": size, "microbatches": samples // size})


def _places(dcs: list[str], num_stages: int) -> Iterator[tuple[str, ...]]:
    """Runs of stages in one data center after another."""
    for count in range(1, min(len(dcs), num_stages) + 1):
        for order in permutations(dcs, count):
            for cuts in combinations(range(1, num_stages), count - 1):
                ends = [0, *cuts, num_stages]
                yield tuple(dc for dc, a, b in zip(order, ends, ends[1:], strict=False) for _ in range(b - a))


def _replicas(dcs: list[str], homes: dict[str, int], most: int) -> Iterator[list[dict[str, object]]]:
    yield []
    if homes:
        others = [dc for dc in dcs if dc not in homes]
        for count in range(1, len(others) + 1):
            for chosen in combinations(others, count):
                for cells in product(range(1, most + 1), repeat=count):
                    yield [{"dc": dc, "cells": n} for dc, n in zip(chosen, cells, strict=True)]


def _plans(
    cluster: Cluster,
    job: Job,
    schedule: ScheduleName,
    tensor_parallel: int,
    where: tuple[str, ...],
    pooled: int,
    cells: int,
    replicas: list[dict[str, object]],
) -> Iterator[Plan]:
    for cuts in combinations(range(1, job.model.layers), len(where) - 1):
        ends = [0, *cuts, job.model.layers]
        layers = [b - a for a, b in pairwise(ends)]
        try:
            yield Plan.model_validate(
                {
                    "cluster": cluster,
                    "job": job,
                    "tensor_parallel": tensor_parallel,
                    "stages": [{"dc": dc, "layers": n} for dc, n in zip(where, layers, strict=True)],
                    "pipelines_per_cell": pooled,
                    "cells": cells,
                    "replicas": replicas,
                    "schedule": schedule,
                }
            )
        except (InputError, ValueError):
            return
