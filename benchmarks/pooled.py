"""A pooled transfer against what the wire allows: three pairs over the emulated WAN, real processes, kernel TCP.

A transfer of b bytes over K pairs of rate w takes at least b / (K w) + rtt / 2. The pair's rate is set low enough that
this machine's cores, which play six nodes and the WAN, are not what is measured, and the TCP window with it, so that a
pair needs several connections at 40 ms as it does in earnest. Needs root or user namespaces; says so
and measures nothing otherwise.
"""

import math
import statistics
import subprocess
import time
from collections.abc import Iterator

from benchmarks.measurement import Measurement
from geotrain.errors import RunError
from geotrain.testbed import Testbed
from geotrain.transport import Settings
from geotrain.transport.pool import Pooling
from geotrain.units import RATE, parse
from tests.testbed.clusters import cluster
from tests.transport.pool.node import ROOT, Node, Start, running
from tests.transport.pool.test_over_wan import LINK, SECOND, SMALL, begin, cut, nodes

K = 3
RATES = {10: ("80 Mbit/s",), 40: ("80 Mbit/s", "160 Mbit/s")}
"""Of a pair, by round trip in ms."""
WINDOW_BYTES = 256 << 10
FABRIC = {"rate": "4 Gbit/s", "latency": "20 us"}
SIZES_MB = (4, 8, 16)
WARM_UPS = 4
TIMES = 7
ROUNDS = 4
LIMIT = 1.15


def run() -> Iterator[Measurement]:
    """All figures, or none where no testbed can be built."""
    try:
        yield _after_a_cut()
    except RunError as error:
        print(f"pooled: not measured: {error}")
        return
    for rtt_ms, words in ((rtt_ms, words) for rtt_ms, rates in RATES.items() for words in rates):
        rate = parse(words, RATE)
        link = cluster(nodes=K, fabric=FABRIC, rtt=rtt_ms / 1000, pair_cap=rate, tcp_window=WINDOW_BYTES)
        try:
            with Testbed(link, nodes_per_dc=K) as bed:
                yield from _measure(bed, rtt_ms, rate, f"pooled {words} {rtt_ms} ms")
        except RunError as error:
            print(f"pooled: not measured: {error}")
            return


def _measure(bed: Testbed, rtt_ms: int, rate: float, setting: str) -> Iterator[Measurement]:
    near = [(bed.address("east", node), _start(bed, "east", node)) for node in range(K)]
    far = [(bed.address("south", node), _start(bed, "south", node)) for node in range(K)]
    pooling = Pooling.for_link(rate_bytes_per_s=rate, rtt_s=rtt_ms / 1000)
    # A third to spare; with twice as many, what they have under way overflows the queue before the pair's limit.
    enough = math.ceil(4 / 3 * rate * rtt_ms / 1000 / WINDOW_BYTES)
    wan = Settings(connections=max(2, enough))
    with running(near[:1], far[:1], wan=wan, pooling=pooling) as (senders, receivers):
        alone = {size_mb: _time(senders[0], receivers[0], size_mb) for size_mb in SIZES_MB}
    with running(near, far, wan=wan, pooling=pooling) as (senders, receivers):
        for size_mb in SIZES_MB:
            took_s = _time(senders[0], receivers[0], size_mb)
            words = f"{setting}, {size_mb} MB"
            over = took_s / _possible_s(size_mb, rtt_ms, rate)
            yield Measurement(name=f"{words}: over b/(3w) + rtt/2", value=over, unit="x", target=LIMIT)
            gain = alone[size_mb] / took_s
            yield Measurement(name=f"{words}: against one pair", value=gain, unit="x", more_is_better=True)
        for size_mb in SIZES_MB:
            over = _turns_s(senders, receivers, size_mb) / _possible_s(K * ROUNDS * size_mb, rtt_ms, rate)
            words = f"{setting}, {K * ROUNDS} transfers of {size_mb} MB in turn"
            yield Measurement(name=f"{words}: over their bytes/(3w) + rtt/2", value=over, unit="x", target=LIMIT)


def _after_a_cut() -> Measurement:
    """The first arrival after a cut; TCP alone would wait for up to as long again as the cut has lasted."""
    sizes = [SMALL] * (3 * SECOND)
    with (
        Testbed(cluster(nodes=1, fabric=FABRIC, **LINK), nodes_per_dc=1) as bed,
        nodes(bed, 1, Settings(connections=4)) as (near, far),
    ):
        begin(near[0], far[0], sizes)
        with cut(bed):
            time.sleep(5)
        healed_at_s = time.monotonic()
        near[0].answer()
        first_s = min(moment for moment in far[0].answer() if moment > healed_at_s) - healed_at_s
    return Measurement(name="a cut of 5 s: first arrival after it", value=first_s, unit="s", target=2.5)


def _possible_s(size_mb: int, rtt_ms: int, rate: float) -> float:
    return size_mb * 1e6 / (K * rate) + rtt_ms / 2000


def _start(bed: Testbed, dc: str, number: int) -> Start:
    def start(command: list[str]) -> "subprocess.Popen[str]":
        return bed.popen(dc, number, command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    return start


def _time(sender: Node, receiver: Node, size_mb: int) -> float:
    """Seconds that a transfer takes: the middle one of several, one at a time, after the windows have opened."""
    return statistics.median([_one(sender, receiver, size_mb) for _ in range(WARM_UPS + TIMES)][WARM_UPS:])


def _one(sender: Node, receiver: Node, size_mb: int) -> float:
    return _together_s([sender], [receiver], [size_mb * 1_000_000])


def _turns_s(senders: list[Node], receivers: list[Node], size_mb: int) -> float:
    return _together_s(senders, receivers, [size_mb * 1_000_000] * ROUNDS)


def _together_s(senders: list[Node], receivers: list[Node], sizes: list[int]) -> float:
    """Seconds from the first send to the last arrival when each of these sends so many buffers."""
    for sender in senders:
        sender.tell(do="make", sizes=sizes)
    for sender in senders:
        sender.answer()
    for receiver in receivers:
        receiver.tell(do="receive", sizes=sizes)
    for sender in senders:
        sender.tell(do="send")
    begins = [moment for sender in senders for moment in sender.answer()]
    ends = [moment for receiver in receivers for moment in receiver.answer()]
    return float(max(ends) - min(begins))


if __name__ == "__main__":
    for figure in run():
        print(f"{figure.name:70} {figure.value:.3f} {figure.unit} {'' if figure.met else 'MISSED'}", flush=True)
