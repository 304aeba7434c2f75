"""The emulated WAN against what the cluster file says: round trips, windows, the pair cap; and what the machine leaves.

The figures of the paper's setting: 1.465 MB windows, 5 Gbit/s per pair, so that 40 ms leave one connection a
seventeenth of the pair. Needs root or user namespaces, and iproute2; says so and measures nothing otherwise.
"""

import math
import time
from collections.abc import Iterator

from benchmarks.measurement import Measurement
from geotrain.errors import RunError
from geotrain.testbed import Testbed
from geotrain.units import RATE, parse
from tests.testbed.clusters import cluster
from tests.testbed.traffic import Stream, round_trip_s

WINDOW_BYTES = 1.465e6
CAP = parse("5 Gbit/s", RATE)
GIGABIT = parse("1 Gbit/s", RATE)
RTTS_MS = (10, 20, 40)
SECONDS = 4.0
EAST, SOUTH = ("east", 0), ("south", 0)


def run() -> Iterator[Measurement]:
    """All figures, or none where no testbed can be built."""
    try:
        with Testbed(cluster(), nodes_per_dc=1):
            pass
    except RunError as error:
        print(f"testbed: not measured: {error}")
        return
    one = math.nan
    for rtt_ms in RTTS_MS:
        with _bed(rtt_ms) as bed:
            trip_s = round_trip_s(bed, EAST, SOUTH)
            one = Stream(bed, EAST, SOUTH, seconds=SECONDS, skip_s=1).rate()
        share = one / (WINDOW_BYTES / (rtt_ms / 1000))
        words = f"testbed {rtt_ms} ms"
        yield Measurement(name=f"{words}: round trip over the file's", value=trip_s * 1000 / rtt_ms, unit="x")
        yield Measurement(name=f"{words}: one connection over window/rtt", value=share, unit="x")
        yield Measurement(name=f"{words}: its distance from 1", value=abs(share - 1), unit="", target=0.15)
    yield from _many(one)
    yield from _limits()


def _bed(rtt_ms: int) -> Testbed:
    return Testbed(cluster(rtt=rtt_ms / 1000, pair_cap=CAP, tcp_window=WINDOW_BYTES), nodes_per_dc=1)


def _many(one: float) -> Iterator[Measurement]:
    """Connections against the cap, at the longest round trip."""
    enough = math.ceil(CAP * RTTS_MS[-1] / 1000 / WINDOW_BYTES)
    with _bed(RTTS_MS[-1]) as bed:
        for connections in (4, 8, enough, enough + 6):
            before, start = bed.counters()["cpu_s"], time.monotonic()
            rate = Stream(bed, EAST, SOUTH, connections, seconds=SECONDS, skip_s=1).rate()
            busy = (bed.counters()["cpu_s"] - before) / (time.monotonic() - start)
            possible = min(CAP, connections * WINDOW_BYTES / (RTTS_MS[-1] / 1000))
            words = f"testbed {RTTS_MS[-1]} ms, {connections} connections"
            target = 0.9 if connections >= enough else None
            yield Measurement(
                name=f"{words}: of what is possible",
                value=rate / possible,
                unit="x",
                target=target,
                more_is_better=True,
            )
            yield Measurement(name=f"{words}: against one", value=rate / one, unit="x")
            yield Measurement(name=f"{words}: the forwarder's CPU", value=busy, unit="cores")


def _limits() -> Iterator[Measurement]:
    """What the forwarder moves when nothing limits it, senders and receivers on the same cores."""
    with Testbed(cluster(rtt="1 ms"), nodes_per_dc=1) as bed:
        before, start = bed.counters()["cpu_s"], time.monotonic()
        rate = Stream(bed, EAST, SOUTH, connections=8, seconds=3, skip_s=1).rate()
        busy = (bed.counters()["cpu_s"] - before) / (time.monotonic() - start)
    yield Measurement(
        name="testbed unlimited: the forwarder", value=rate / GIGABIT, unit="Gbit/s", target=3.0, more_is_better=True
    )
    yield Measurement(name="testbed unlimited: its CPU", value=busy, unit="cores")
