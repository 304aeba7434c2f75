"""Plans that a search may not have tried, on random small clusters: what its stated gap is compared with."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.simulation import simulate
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.problem import Problem
from geotrain.workload import Job

_GPUS = ("a100-80gb", "h100", "l40s")


def random_case(seed: int) -> tuple[Cluster, Job]:
    """Two data centers with up to eight GPUs each, and so many layers that not every division of them is tried."""
    luck = random.Random(seed)
    dcs = [
        {
            "name": name,
            "nodes": luck.randint(2, 4),
            "gpus_per_node": luck.choice([1, 2]),
            "gpu": luck.choice(_GPUS),
            "fabric": {"rate": luck.choice(["25 Gbit/s", "400 Gbit/s"]), "latency": "10 us"},
        }
        for name in ("a", "b")
    ]
    default = {"rtt": luck.randint(1, 100) / 1e3, "pair_cap": luck.choice([1, 2, 5, 20]) * 1e9 / 8}
    if luck.random() < 0.5:
        default["capacity"] = default["pair_cap"] * luck.choice([1, 2, 4])
    model = {"layers": luck.randint(9, 24), "hidden": 4096, "heads": 32, "vocab": luck.choice([1000, 128_000])}
    job = {"model": model, "sequence": 2048, "global_batch": luck.choice([8, 16, 32])}
    content = {"datacenters": dcs, "wan": {"default": default}}
    return Cluster.parse(content, source=Path("random")), Job.parse(job, source=Path("random"))


def s_per_token(plan: Plan) -> float:
    """Infinite if it does not fit."""
    try:
        return simulate(plan).step_time_s / plan.tokens_per_step
    except InputError:
        return float("inf")


def bound_per_token(plan: Plan) -> float:
    """What no schedule of it beats; infinite if it does not fit."""
    try:
        return lower_bound(Problem(plan)).total_s / plan.tokens_per_step
    except InputError:
        return float("inf")


def neighbours(plan: Plan) -> Iterator[Plan]:
    """The plan with a layer moved, with microbatches of another size, and with cells of another size."""
    layers = [stage.layers for stage in plan.stages]
    for source in range(len(layers)):
        for target in {0, source - 1, source + 1, len(layers) - 1} & set(range(len(layers))) - {source}:
            moved = [n + (stage == target) - (stage == source) for stage, n in enumerate(layers)]
            yield from _changed(plan, stages=_stages([stage.dc for stage in plan.stages], moved))
    for size in {plan.job.microbatch * 2, max(1, plan.job.microbatch // 2)}:
        yield from _changed(plan, job=plan.job.model_copy(update={"microbatch": size}))
    pipelines = plan.pipelines_per_cell * plan.cells
    for pooled in range(1, pipelines + 1):
        if not plan.replicas and pipelines % pooled == 0:
            yield from _changed(plan, pipelines_per_cell=pooled, cells=pipelines // pooled)


def random_plans(cluster: Cluster, job: Job, number: int, seed: int) -> Iterator[Plan]:
    """Pipelines across both data centers or in one of them, about so many."""
    luck = random.Random(seed)
    for _ in range(number):
        names = luck.sample([dc.name for dc in cluster.datacenters], luck.randint(1, 2))
        where = [name for name in names for _ in range(luck.randint(1, 4))]
        cuts = sorted(luck.sample(range(1, job.model.layers), len(where) - 1))
        layers = [end - start for start, end in zip([0, *cuts], [*cuts, job.model.layers], strict=True)]
        choices: dict[str, Any] = {
            "cluster": cluster,
            "job": job.model_copy(update={"microbatch": luck.choice([1, 2, 4])}),
            "tensor_parallel": luck.choice([1, 1, 2]),
            "stages": _stages(where, layers),
            "pipelines_per_cell": luck.choice([1, 2]),
            "cells": luck.choice([1, 2]),
            "schedule": "zero-bubble-2p",
        }
        try:
            yield Plan.model_validate(choices)
        except (InputError, ValueError):
            continue


def _stages(where: list[str], layers: list[int]) -> list[dict[str, Any]]:
    return [{"dc": dc, "layers": number} for dc, number in zip(where, layers, strict=True)]


def _changed(plan: Plan, **change: Any) -> Iterator[Plan]:
    """The plan with the change, if that is a plan."""
    try:
        yield plan.change(**change)
    except (InputError, ValueError):
        return
