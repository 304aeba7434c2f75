"""Nodes that are processes, over the emulated WAN: cuts, loss, a slow reader. K = 1 is a channel, more are a pool."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from geotrain.testbed import Testbed
from geotrain.transport import Settings
from geotrain.transport.pool import Pooling
from tests.testbed.clusters import cluster
from tests.testbed.machine import require_namespaces
from tests.transport.pool.node import Node, count, places, running, transfer

pytestmark = pytest.mark.slow


LINK: dict[str, Any] = {"rtt": "20 ms", "pair_cap": "80 Mbit/s", "tcp_window": 128 << 10}
FABRIC = {"rate": "2 Gbit/s"}
MOST = 3
SMALL = 200_000
SECOND = 10_000_000 // SMALL
"""Buffers that a pair carries in a second."""
KINDS = pytest.mark.parametrize("size", [pytest.param(1, id="channel"), pytest.param(MOST, id="pool")])


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    require_namespaces()
    with Testbed(cluster(nodes=MOST, fabric=FABRIC, **LINK), nodes_per_dc=MOST) as bed:
        yield bed


def nodes(bed: Testbed, size: int, wan: Settings, pooling: Pooling | None = None):
    near, far = places(bed, "east", size), places(bed, "south", size)
    return running(near, far, wan=wan, pooling=pooling or Pooling(chunk_bytes=256 << 10))


@contextmanager
def cut(bed: Testbed) -> Iterator[None]:
    """Nothing crosses the WAN, either way, until the end of the block."""
    for way in (("east", "south"), ("south", "east")):
        bed.cut(*way)
    try:
        yield
    finally:
        for way in (("east", "south"), ("south", "east")):
            bed.heal(*way)


def begin(sender: Node, receiver: Node, sizes: list[int]) -> None:
    """A transfer of which a quarter has come; the receiver's next answer is about the rest."""
    first = len(sizes) // 4
    sender.tell(do="make", sizes=sizes)
    sender.answer()
    receiver.tell(do="receive", sizes=sizes[:first])
    sender.tell(do="send")
    assert len(receiver.answer()) == first
    receiver.tell(do="receive", sizes=sizes[first:])


def check_nothing_follows(sender: Node, receiver: Node, sizes: list[int]) -> None:
    """Whatever came twice would come before the next buffer."""
    transfer([sender], [receiver], [1])
    assert len(sender.answer()) == len(receiver.answer()) == 1
    sent, came = count(sender), count(receiver)
    assert sent["bytes_sent"] == came["bytes_received"] == sum(sizes) + 1
    assert sent["buffers_sent"] == came["buffers_received"] == len(sizes) + 1


@KINDS
def test_the_wan_is_cut_for_seconds_and_healed(bed: Testbed, size: int):
    sizes = [SMALL] * (3 * SECOND * size)
    wan = Settings(connections=4)
    with nodes(bed, size, wan) as (near, far):
        begin(near[0], far[0], sizes)
        with cut(bed):
            time.sleep(wan.doubt_s + 1)
        healed_at_s = time.monotonic()
        # Compared byte by byte there: whole, in order, once.
        assert len(near[0].answer()) == len(sizes)
        assert far[0].answer()[-1] > healed_at_s
        check_nothing_follows(near[0], far[0], sizes)


@KINDS
def test_a_peer_behind_a_cut_is_lost_and_named(bed: Testbed, size: int):
    with nodes(bed, size, Settings(connections=4, peer_timeout_s=3.0)) as (near, far):
        begin(near[0], far[0], [SMALL] * (2 * SECOND * size))
        with cut(bed):
            assert near[0].answer().startswith("PeerLostError: f0: lost: silent for ")
            assert far[0].answer().startswith("PeerLostError: n0: lost: silent for ")


@KINDS
def test_one_packet_in_a_hundred_is_lost(size: int):
    require_namespaces()
    sizes = [SMALL] * (SECOND * size)
    with (
        Testbed(cluster(nodes=size, fabric=FABRIC, loss=0.01, **LINK), nodes_per_dc=size) as bed,
        nodes(bed, size, Settings(connections=8)) as (near, far),
    ):
        transfer([near[0]], [far[0]], sizes)
        assert len(near[0].answer()) == len(far[0].answer()) == len(sizes)
        check_nothing_follows(near[0], far[0], sizes)
        if (ways := bed.counters()["ways"]) is not None:
            assert all(way["lost"] > 0 for way in ways)


@KINDS
def test_a_slow_reader_bounds_the_memory_of_all(bed: Testbed, size: int):
    window = 2_000_000
    wan = Settings(connections=4, window_bytes=window, max_buffer_bytes=window)
    pooling = Pooling(chunk_bytes=256 << 10, path_bytes=window, window_bytes=window, max_buffer_bytes=window)
    sizes = [SMALL] * 60
    with nodes(bed, size, wan, pooling) as (near, far):
        near[0].tell(do="make", sizes=sizes)
        near[0].answer()
        before = {node: count(node)["peak_bytes"] for node in near + far}
        near[0].tell(do="send")
        time.sleep(1.5)
        grown = [count(node)["peak_bytes"] - before[node] for node in near[1:] + far]
        far[0].tell(do="receive", sizes=sizes)
        assert len(near[0].answer()) == len(far[0].answer()) == len(sizes)
        grown.append(count(near[0])["peak_bytes"] - before[near[0]])
        assert max(grown) < 4 * window < sum(sizes)
