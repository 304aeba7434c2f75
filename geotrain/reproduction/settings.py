"""Plans, clusters and jobs of the experiments: the published setting as far as it is known, else our choice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from geotrain.cluster import Cluster
from geotrain.plan import Plan, ScheduleName, Sharing
from geotrain.units import RATE, parse
from geotrain.workload import Job

SOURCE = Path("experiment")
PAIR_CAP = "5 Gbit/s"
WAN: dict[str, str] = {"rtt": "40 ms", "pair_cap": PAIR_CAP, "tcp_window": "1.465 MB"}
"""The published path: about 293 Mbit/s for one connection at 40 ms."""
FABRIC = {"rate": "100 Gbit/s", "latency": "10 us"}
BOUNDARY_BYTES = 4096 * 4096 * 2
"""GPT-A: sequence x hidden in two bytes."""
Connections = int | Literal["auto"]
CONNECTIONS: dict[str, Connections] = {"one": 1, "many": "auto"}


def forward_s(c: float) -> float:
    """A stage's forward, such that a transfer over a pair takes `c` times as long."""
    return BOUNDARY_BYTES / parse(PAIR_CAP, RATE) / c


def stage_profile(forward: float) -> dict[str, float]:
    """Recompute costs a forward, backward two, half of it for the weights."""
    return {"forward_s": forward, "recompute_s": forward, "backward_s": 2 * forward, "weight_grad_s": forward}


def way(schedule: ScheduleName, connections: Connections = "auto") -> dict[str, Any]:
    """A schedule as published: the older ones know nothing of pooled bandwidth."""
    sharing: Sharing = "temporal" if schedule in ("atlas", "auto") else "spatial"
    return {"schedule": schedule, "connections": connections, "sharing": sharing}


def gpt_a(
    schedule: ScheduleName,
    connections: Connections,
    sharing: Sharing,
    *,
    pipelines: int = 4,
    rtt_ms: float = 40,
    microbatches: int = 4,
    c: float | None = None,
    max_in_flight: int | Literal["auto"] = "auto",
    stages: Sequence[str] = ("east", "east", "south", "west"),
) -> Plan:
    """Stages of GPT-A proportions, 12.5 ms per forward unless `c` says otherwise; two in the first data center."""
    forward = 0.0125 if c is None else forward_s(c)
    names = list(dict.fromkeys(stages))
    content = {
        "cluster": {
            "datacenters": [
                {"name": name, "nodes": len(stages) * pipelines, "gpu": "a100-80gb", "fabric": FABRIC} for name in names
            ],
            "wan": {"default": WAN | {"rtt": rtt_ms / 1e3}},
        },
        "job": {
            "model": {"name": "gpt-a", "layers": len(stages)},
            "microbatches": microbatches,
            "profile": {"stage": stage_profile(forward), "gradient_bytes": 0, "optimizer_s": 0},
        },
        "stages": [{"dc": dc, "layers": 1} for dc in stages],
        "pipelines_per_cell": pipelines,
        "schedule": schedule,
        "max_in_flight": max_in_flight,
        "wan": {"connections": connections, "sharing": sharing},
    }
    return Plan.parse(content, source=SOURCE)


def large_cluster(nodes: Sequence[int], price_per_gpu_hour: Sequence[float] | None = None) -> Cluster:
    """Data centers of that many A100s, 40 ms apart; a gigabyte between them costs 2 cents where GPUs cost anything."""
    prices = price_per_gpu_hour or [0.0] * len(nodes)
    dcs = [
        {"name": f"dc{n}", "nodes": number, "gpu": "a100-80gb", "price_per_gpu_hour": price}
        for n, (number, price) in enumerate(zip(nodes, prices, strict=True))
    ]
    default = WAN | ({"price_per_gb": 0.02} if any(prices) else {})
    return Cluster.parse({"datacenters": dcs, "wan": {"default": default}}, source=SOURCE)


def large_job(microbatches: int, *, gradient_bytes: float | None = None) -> Job:
    """60 layers, each a stage; a transfer takes twice as long as a forward."""
    forward = forward_s(2.0)
    times = {"forward_s": forward, "recompute_s": forward, "backward_s": 2 * forward}
    profile: dict[str, Any] = {"stage": times, "boundary_bytes": BOUNDARY_BYTES}
    if gradient_bytes is not None:
        profile["gradient_bytes"] = gradient_bytes
    model = {"layers": 60, "hidden": 4096, "heads": 32, "vocab": 50257}
    content = {"model": model, "sequence": 4096, "microbatches": microbatches, "profile": profile}
    return Job.parse(content, source=SOURCE)
