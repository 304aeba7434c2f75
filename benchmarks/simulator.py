"""How fast the simulator is: spans per second, large steps, first use."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measurement import Measurement, best_of
from geotrain.plan import Plan
from geotrain.schedule import candidates
from geotrain.simulation import simulate
from geotrain.simulation.play import play
from geotrain.simulation.problem import Problem

EXAMPLE = Path(__file__).parents[1] / "geotrain" / "examples" / "three-dcs" / "plan.yaml"


def five_datacenters(
    schedule: str, *, sharing: str = "temporal", cells: int, nodes: int = 600, gpus_per_node: int = 1, tensor: int = 1
) -> Plan:
    """60 stages over five data centers, 240 microbatches, four pipelines per cell."""
    fabric = {"rate": "100 Gbit/s", "latency": "10 us"}
    datacenters = [
        {"name": f"dc{n}", "nodes": nodes, "gpus_per_node": gpus_per_node, "gpu": "a100-80gb", "fabric": fabric}
        for n in range(5)
    ]
    wan = {"default": {"rtt": "40 ms", "pair_cap": "5 Gbit/s", "tcp_window": "1.465 MB"}}
    return Plan.parse(
        {
            "cluster": {"datacenters": datacenters, "wan": wan},
            "job": {"model": {"name": "gpt-b", "layers": 120}, "microbatches": 240},
            "tensor_parallel": tensor,
            "stages": [{"dc": f"dc{s // 12}", "layers": 2} for s in range(60)],
            "pipelines_per_cell": 4,
            "cells": cells,
            "schedule": schedule,
            "wan": {"sharing": sharing},
        },
        source=Path("benchmark"),
    )


def run() -> Iterator[Measurement]:
    """All figures of the simulator."""
    yield from _spans_per_second()
    yield from _large_steps()
    yield from _first_use()


def _spans_per_second() -> Iterator[Measurement]:
    for schedule, kind in (("1f1b", "static"), ("varuna", "work-conserving"), ("zero-bubble", "split backward")):
        problem = Problem(five_datacenters(schedule, cells=1))
        made = candidates(problem.plan.schedule, problem.shape)[0]
        pooled = frozenset(problem.wan_boundaries)
        played = play(problem, made, pooled)
        spans = played.actions.shape[1] + played.transfers.shape[1]
        seconds = best_of(10, partial(play, problem, made, pooled))
        yield Measurement(
            name=f"spans per second, {schedule} ({kind})",
            value=spans / seconds / 1e6,
            unit="million",
            target=5,
            more_is_better=True,
        )


def _large_steps() -> Iterator[Measurement]:
    plan = five_datacenters("atlas", cells=12)
    yield Measurement(
        name=f"one step of {plan.num_gpus} GPUs, atlas, with all figures",
        value=best_of(5, lambda: simulate(plan)),
        unit="s",
        target=0.1,
    )
    search = five_datacenters("auto", cells=12)
    yield Measurement(
        name="the same with auto, search included", value=best_of(2, lambda: simulate(search)), unit="s", target=2
    )
    large = five_datacenters("atlas", cells=52, nodes=2500, gpus_per_node=8, tensor=8)
    yield Measurement(
        name=f"one step of {large.num_gpus} GPUs, atlas, with all figures",
        value=best_of(3, lambda: simulate(large)),
        unit="s",
        target=2,
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    yield Measurement(name="peak memory of all that", value=peak, unit="GB", target=2)


def _first_use() -> Iterator[Measurement]:
    def geotrain(*arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "geotrain", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | environment)

    yield Measurement(name="geotrain --help", value=best_of(5, lambda: geotrain("--help")), unit="s", target=0.3)
    with tempfile.TemporaryDirectory() as empty:
        first = best_of(1, lambda: geotrain("simulate", str(EXAMPLE), NUMBA_CACHE_DIR=empty))
        again = best_of(3, lambda: geotrain("simulate", str(EXAMPLE), NUMBA_CACHE_DIR=empty))
    yield Measurement(name="first geotrain simulate after install", value=first, unit="s", target=10)
    yield Measurement(name="every later one", value=again, unit="s")
