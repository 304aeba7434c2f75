"""The physics of the published claim: GPT-A over three data centers, Atlas against the others, 10 to 40 ms.

The published figure (up to 17x) has known conditions only in part; these are ours: four stages over three data
centers, four microbatches, 12.5 ms per forward and recompute, 25 ms per backward, 33.5 MB per boundary, one
connection of a 1.465 MB window against 5 Gbit/s per pair. Shown, not tuned to.
"""

from collections.abc import Iterator

from benchmarks.measurement import Measurement
from geotrain.plan import ScheduleName
from geotrain.reproduction.settings import CONNECTIONS, gpt_a
from geotrain.simulation import simulate

_OTHERS: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "varuna")


def run() -> Iterator[Measurement]:
    """Speed-up of Atlas, by round-trip time, pipelines per cell, schedule and connections."""
    for pipelines in (3, 4):
        for rtt_ms in (10, 20, 30, 40):
            atlas = simulate(gpt_a("atlas", "auto", "temporal", pipelines=pipelines, rtt_ms=rtt_ms)).step_time_s
            for schedule in _OTHERS:
                for words, connections in CONNECTIONS.items():
                    plan = gpt_a(schedule, connections, "spatial", pipelines=pipelines, rtt_ms=rtt_ms)
                    yield Measurement(
                        name=f"atlas over {schedule}, connections: {words}, K = {pipelines}, {rtt_ms} ms",
                        value=simulate(plan).step_time_s / atlas,
                        unit="x",
                    )
