"""`auto` against the exact solver on random small cases: how far from the best possible, with proof.

Up to four stages and six microbatches, one or two WAN hops, one or two pipelines per cell, spatial and temporal
sharing, equal and unequal stages, with and without recompute; memory for one to four microbatches or plenty, a cap on
those in flight or none, weight gradients that keep nothing or up to twice what the whole backward needs.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurement import Measurement
from geotrain.plan import Plan
from geotrain.simulation import simulate
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.exact import solve
from geotrain.simulation.problem import Problem

CASES = 240
SECONDS = 20


def small_plan(luck: random.Random) -> Plan:
    """One random case; times in tenths of a millisecond, so that nothing is rounded."""
    stages, microbatches = luck.randint(2, 4), luck.randint(2, 6)
    crossing = set(luck.sample(range(stages - 1), luck.randint(1, min(2, stages - 1))))
    place = [sum(boundary in crossing for boundary in range(stage)) for stage in range(stages)]
    equal, weight_share = luck.random() < 0.5, luck.choice([0.3, 0.5, 0.5, 0.6])
    forward_ms = [1.0 if equal else luck.randint(5, 20) / 10 for _ in range(stages)]
    kept, workspace = luck.choice([0.0, 0.5, 1.0, 2.0]), luck.choice([0, 1])
    room = luck.choice([80e6, 1, 2, 3, 4])
    links = [
        {
            "between": [f"dc{number}", f"dc{number + 1}"],
            "rtt": luck.randint(0, 120) / 10 * 1e-3,
            "pair_cap": 1e6 / (luck.randint(5, 40) / 10 * 1e-3),
        }
        for number in range(place[-1])
    ]
    stage = [
        {
            "forward_s": ms * 1e-3, "recompute_s": ms * 1e-3, "backward_s": 2 * ms * 1e-3,
            "weight_grad_s": round(2 * ms * weight_share, 1) * 1e-3, "static_bytes": 0, "activation_bytes": 1e3,
            "weight_grad_bytes": kept * 1e3, "workspace_bytes": workspace * 1e3,
        }
        for ms in forward_ms
    ]  # fmt: skip
    gpu = {"name": "small", "bf16": 1e15, "fp16": 1e15, "fp32": 1e15, "memory": (room + workspace) * 1e3,
           "memory_bandwidth": 1e12}  # fmt: skip
    content: dict[str, Any] = {
        "cluster": {
            "datacenters": [
                {"name": f"dc{n}", "nodes": 16, "gpu": gpu, "memory_reserve": 0} for n in range(place[-1] + 1)
            ],
            "wan": {"links": links},
        },
        "job": {
            "model": {"layers": stages, "hidden": 64, "heads": 2, "vocab": 100},
            "sequence": 16,
            "microbatches": microbatches,
            "recompute": luck.random() < 0.4,
            "profile": {"stage": stage, "boundary_bytes": 1e6, "gradient_bytes": 0, "optimizer_s": 0},
        },
        "stages": [{"dc": f"dc{n}", "layers": 1} for n in place],
        "pipelines_per_cell": luck.choice([1, 2]),
        "wan": {"sharing": luck.choice(["spatial", "temporal"])},
        "schedule": "auto",
        "max_in_flight": luck.choice(["auto", "auto", 2, 3, 4]),
    }
    return Plan.parse(content, source=Path("benchmark"))


def run() -> Iterator[Measurement]:
    """Ratios of auto's step to the solver's proven best, or to its bound where it could not prove one."""
    luck = random.Random(0)
    ratios, floors, proven = [], [], 0
    for _ in range(CASES):
        plan = small_plan(luck)
        found = simulate(plan).step_time_s
        problem = Problem(plan)
        best = solve(problem, seconds=SECONDS, hint_step_s=found)
        ratios.append(found / best.bound_s)
        floors.append(lower_bound(problem).total_s / best.bound_s)
        proven += best.optimal
    words = f"auto over the exact solver, {CASES} small cases"
    yield Measurement(name=f"{words}, proven", value=proven, unit="cases")
    yield Measurement(name=f"{words}, equal", value=sum(r < 1 + 1e-9 for r in ratios), unit="cases")
    yield Measurement(name=f"{words}, least", value=min(ratios), unit="x", target=1 - 1e-9, more_is_better=True)
    yield Measurement(name=f"{words}, median", value=median(ratios), unit="x", target=1.03)
    yield Measurement(name=f"{words}, worst", value=max(ratios), unit="x", target=1.1)
    words = "lower bound over the exact solver"
    yield Measurement(name=f"{words}, least", value=min(floors), unit="x")
    yield Measurement(name=f"{words}, median", value=median(floors), unit="x")
    yield Measurement(name=f"{words}, most", value=max(floors), unit="x", target=1 + 1e-9)
