"""The physics of the published claim: GPT-A over three data centers, Atlas against the others, 10 to 40 ms.

The published figure (up to 17x) has known conditions only in part; these are ours: four stages over three data
centers, four microbatches, 12.5 ms per forward and recompute, 25 ms per backward, 33.5 MB per boundary, one
connection of a 1.465 MB window against 5 Gbit/s per pair. Shown, not tuned to.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from geotrain.plan import Plan
from geotrain.simulation import simulate


def gpt_a(schedule: str, connections: int | str, sharing: str, *, pipelines: int, rtt_ms: int) -> Plan:
    """Four stages of GPT-A proportions: two in the first data center, one in each of the others."""
    fabric = {"rate": "100 Gbit/s", "latency": "10 us"}
    names = ("east", "south", "west")
    wan = {"rtt": f"{rtt_ms} ms", "pair_cap": "5 Gbit/s", "tcp_window": "1.465 MB"}
    stage = {"forward_s": "12.5 ms", "recompute_s": "12.5 ms", "backward_s": "25 ms", "weight_grad_s": "12.5 ms"}
    return Plan.parse(
        {
            "cluster": {
                "datacenters": [{"name": n, "nodes": 8, "gpu": "a100-80gb", "fabric": fabric} for n in names],
                "wan": {"default": wan},
            },
            "job": {
                "model": "gpt-a",
                "microbatches": 4,
                "profile": {"stage": stage, "gradient_bytes": 0, "optimizer_s": 0},
            },
            "stages": [{"dc": dc, "layers": 1} for dc in ("east", "east", "south", "west")],
            "pipelines_per_cell": pipelines,
            "schedule": schedule,
            "wan": {"connections": connections, "sharing": sharing},
        },
        source=Path("benchmark"),
    )


def run() -> Iterator[Measurement]:
    """Speed-up of Atlas, by round-trip time, pipelines per cell, schedule and connections."""
    for pipelines in (3, 4):
        for rtt_ms in (10, 20, 30, 40):
            atlas = simulate(gpt_a("atlas", "auto", "temporal", pipelines=pipelines, rtt_ms=rtt_ms)).step_time_s
            for schedule in ("gpipe", "1f1b", "varuna"):
                for connections, words in ((1, "one connection"), ("auto", "many connections")):
                    plan = gpt_a(schedule, connections, "spatial", pipelines=pipelines, rtt_ms=rtt_ms)
                    yield Measurement(
                        name=f"atlas over {schedule}, {words}, K = {pipelines}, {rtt_ms} ms",
                        value=simulate(plan).step_time_s / atlas,
                        unit="x",
                    )
