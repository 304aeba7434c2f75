"""Whole pools with their threads, on channels in memory with a set delay and rate."""

import threading
from dataclasses import replace

import pytest

from geotrain.errors import InputError
from geotrain.transport import Channel, ClosedError, DeadlineError, Direction, FrameError, PeerLostError
from geotrain.transport.memory import memory_pair
from geotrain.transport.pool import Pool, pooled
from tests.threads import together
from tests.transport.pairs import soon
from tests.transport.pool.cells import JOB, SMALL, Cells, cells, header, noise

SIZES = [0, 5000, 700_000, 1_500_001]


def exchange(made: Cells, sizes: list[int], members: list[int] | None = None) -> None:
    """Every member sends all sizes to its counterpart and receives as many, both ways at once; bytes are compared."""

    def send(channel: Channel, n: int, direction: Direction) -> None:
        for m, size in enumerate(sizes):
            channel.send(header(n, m, direction), noise(size, n, m, direction), deadline_s=30)
        channel.flush(deadline_s=30)

    def receive(channel: Channel, n: int, direction: Direction) -> None:
        for m, size in enumerate(sizes):
            message = channel.receive(deadline_s=30)
            assert (message.header, message.data) == (header(n, m, direction), noise(size, n, m, direction))

    work = []
    for n in range(len(made.near)) if members is None else members:
        ways = ((made.near[n], made.far[n], Direction.FORWARD), (made.far[n], made.near[n], Direction.BACKWARD))
        for here, there, direction in ways:
            work.append(lambda channel=here, n=n, direction=direction: send(channel, n, direction))
            work.append(lambda channel=there, n=n, direction=direction: receive(channel, n, direction))
    together(*work)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_everything_arrives_both_ways_at_once(size: int):
    with cells(size, delay_s=0.005) as made:
        exchange(made, SIZES)
        counters = [pool.counters for pool in made.near + made.far]
        assert {(c.buffers_sent, c.buffers_received, c.bytes_received) for c in counters} == {(4, 4, sum(SIZES))}


def test_one_member_alone_is_the_plain_channel():
    one, _ = memory_pair()
    assert pooled(member=0, lan={}, wan=one, job=JOB) is one


def test_a_member_is_not_its_own_peer():
    one, other = memory_pair()
    with pytest.raises(InputError, match=r"^member 1 has itself among its cell peers$"):
        Pool(member=1, lan={1: one}, wan=other, job=JOB)


def test_a_transfer_goes_over_all_pairs():
    # A pair's rate holds the sender back, so that the others get their part, however slowly they come to run.
    with cells(3, delay_s=0.02, rate_bytes_per_s=2e6) as made:
        made.near[0].send(header(), noise(1_500_000), deadline_s=30)
        assert made.far[0].receive(deadline_s=30).data == noise(1_500_000)
        for relay in (*made.near[1:], *made.far[1:]):
            assert isinstance(relay, Pool)
            assert relay.relayed_bytes > 0


@pytest.mark.parametrize("victim", ["n1", "f1"])
def test_a_relay_that_dies_is_routed_around(victim: str):
    # What a relay has passed on is on its way, or unacknowledged, for some time: enough to kill it.
    with cells(3, delay_s=0.4, rate_bytes_per_s=1e6) as made:
        relay, survivor = (made.near[1], made.far[1]) if victim == "n1" else (made.far[1], made.near[1])
        assert isinstance(relay, Pool)

        def kill() -> None:
            assert soon(lambda: relay.relayed_bytes > 0)
            made.kill(victim)

        together(kill, lambda: exchange(made, [700_000, 700_000], members=[0, 2]))
        assert soon(lambda: [made.near[n].counters.connections for n in (0, 2)] == [2, 2])
        assert made.near[0].counters.resends + made.far[0].counters.resends > 0
        with pytest.raises(PeerLostError, match=f"^{victim}: lost$"):
            survivor.receive(deadline_s=30)
        with pytest.raises(PeerLostError, match=f"^{victim}: lost$"):
            survivor.send(header(), b"", deadline_s=30)


def test_all_relays_may_die():
    with cells(4) as made:
        for victim in ("n1", "f2", "n3"):
            made.kill(victim)
        exchange(made, SIZES, members=[0])
        assert soon(lambda: made.near[0].counters.connections == 1)


def test_the_counterpart_that_dies_is_named_to_every_call_that_waits():
    with cells(2) as made:
        killer = threading.Timer(0.05, made.kill, ["f0"])
        killer.start()
        with pytest.raises(PeerLostError, match=r"^f0: lost$"):
            made.near[0].receive(deadline_s=30)
        with pytest.raises(PeerLostError, match=r"^f0: lost$"):
            made.near[0].flush(deadline_s=30, number=0)
        exchange(made, SIZES, members=[1])


def test_a_peer_that_closes_is_routed_around():
    with cells(3) as made:
        made.near[1].close()
        exchange(made, SIZES, members=[0, 2])
        assert soon(lambda: made.near[0].counters.connections == 2)


def test_waits_end_with_the_deadline_and_leave_the_pool_as_it_was():
    with cells(2, delay_s=1.0) as made:
        with pytest.raises(DeadlineError, match=r"^n0: no buffer within 0.02 s$"):
            made.far[0].receive(deadline_s=0.02)
        made.near[0].send(header(), noise(100_000), deadline_s=30)
        with pytest.raises(DeadlineError, match=r"^f0: buffer 0 not acknowledged within 0.02 s$"):
            made.near[0].flush(deadline_s=0.02)
        assert made.far[0].receive(deadline_s=30).data == noise(100_000)
        made.near[0].flush(deadline_s=30)


def test_relays_hold_a_bounded_number_of_shards():
    pooling = replace(SMALL, chunk_bytes=32 << 10, path_bytes=128 << 10, wire_bytes=32 << 10)
    most = 0
    with cells(2, pooling, rate_bytes_per_s=5e5) as made:
        relay = made.near[1]
        assert isinstance(relay, Pool)
        for m in range(3):
            made.near[0].send(header(0, m), noise(500_000, m), deadline_s=30)
        for m in range(3):
            while True:
                most = max(most, relay.held_bytes)
                try:
                    assert made.far[0].receive(deadline_s=0.002).data == noise(500_000, m)
                    break
                except DeadlineError:
                    continue
        assert 0 < most <= pooling.path_bytes
        assert relay.relayed_bytes > 500_000


def test_a_peer_that_talks_nonsense_is_cut_off_and_the_rest_goes_on():
    (lan, peer), (wan, counterpart) = memory_pair("n0", "n1"), memory_pair("n0", "f0")
    with Pool(member=0, lan={1: lan}, wan=wan, job=JOB, pooling=SMALL) as pool:
        peer.send(header(pipeline=9 << 16), b"nonsense", deadline_s=30)
        with pytest.raises(ClosedError, match=r"^n0: has closed the channel$"):
            peer.receive(deadline_s=30)
        assert pool.counters.connections == 1
        counterpart.send(header(pipeline=9 << 16), b"nonsense", deadline_s=30)
        with pytest.raises(FrameError, match=r"^f0: unknown kind of word 9$"):
            pool.receive(deadline_s=30)


def test_pooled_and_plain_bytes_are_the_same():
    came = []
    for size in (1, 3):
        with cells(size) as made:
            for m, length in enumerate(SIZES):
                made.near[0].send(header(0, m), noise(length, m), deadline_s=30)
            came.append([(m.header, bytes(m.data)) for m in (made.far[0].receive(deadline_s=30) for _ in SIZES)])
    assert came[0] == came[1]
