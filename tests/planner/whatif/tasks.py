"""What workers are given in tests: functions that other processes can import, and stand-ins for the planner."""

import math
import os
import signal
from collections.abc import Sequence

from geotrain.cluster import Cluster
from geotrain.planner.whatif import Found, NothingFits, Outcome, Point
from geotrain.units import RATE, parse
from geotrain.workload import Job

KNEE = parse("1.25 Gbit/s", RATE)


def square(number: int) -> int:
    return number * number


def fails_at_three(number: int) -> int:
    if number == 3:
        raise ZeroDivisionError("three")
    return number


def dies_at_the_end(number: int) -> int:
    if number == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def interrupted_at_three(number: int) -> int:
    if number == 3:
        raise KeyboardInterrupt
    return number


def cluster(*nodes: int, pair_cap: str | None = "5 Gbit/s", links: Sequence[object] = ()) -> Cluster:
    """Data centers a, b, c, ... of one GPU a node."""
    datacenters = [
        {"name": name, "nodes": number, "gpu": "a100-80gb", "price_per_gpu_hour": 2.0}
        for name, number in zip("abcde", nodes, strict=False)
    ]
    link = {"rtt": "40 ms", "pair_cap": pair_cap}
    return Cluster.model_validate({"datacenters": datacenters, "wan": {"default": link, "links": list(links)}})


def job(**fields: object) -> Job:
    """The smallest model of the catalog."""
    return Job.model_validate({"model": "gpt-a", "microbatches": 4, **fields})


def arithmetic(point: Point) -> Outcome:
    """A planner that takes every data center above a tenth of the largest, as fast as the pairs allow."""
    nodes = {dc.name: dc.nodes for dc in point.cluster.datacenters}
    used = {name: number for name, number in nodes.items() if number > max(nodes.values()) / 10}
    if not used:
        return NothingFits(reason="there are no GPUs")
    cap = point.cluster.wan.default.pair_cap or math.inf
    speed = min(1.0, cap / KNEE) if len(used) > 1 else 1.0
    return found(used, tokens_per_s=1000.0 * sum(used.values()) * speed)


def found(used: dict[str, int], *, tokens_per_s: float, binding: str = "compute of stage 0") -> Found:
    return Found(
        tokens_per_s=tokens_per_s,
        step_time_s=0.5,
        cost_per_billion_tokens=20.0,
        gpus=sum(used.values()),
        datacenters=used,
        tensor_parallel=1,
        stages=2,
        pipelines=sum(used.values()) // 2,
        schedule="auto",
        across="pipeline" if len(used) > 1 else "none",
        binding=binding,
        evaluations=3,
        gap=0.0,
    )
