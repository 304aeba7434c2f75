"""Whole cells without threads: any order of events, any relay dead, any line cut."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.transport import Direction, FrameError, PeerLostError
from geotrain.transport.pool.member import Member
from geotrain.transport.pool.words import Down, Opening, Receipt, Shard, Word, wrap
from tests.transport.pool.cells import JOB, SMALL, header, noise
from tests.transport.pool.net import Net

SIZES = [0, 1, 4096, 40_000, 200_001]


def send_all(net: Net, rounds: int) -> None:
    for (side, n), member in net.members.items():
        for m in range(rounds):
            direction = Direction.FORWARD if side == "n" else Direction.BACKWARD
            member.send(header(n, m, direction), noise(SIZES[(n + m) % len(SIZES)], n, m, direction))


def received(net: Net, side: str, n: int) -> list[int]:
    """The microbatches that have come, each compared with what was sent."""
    direction = Direction.BACKWARD if side == "n" else Direction.FORWARD
    microbatches = []
    while (message := net.members[side, n].receive()) is not None:
        m = message.header.microbatch
        assert message.header == header(n, m, direction)
        assert message.data == noise(SIZES[(n + m) % len(SIZES)], n, m, direction)
        microbatches.append(m)
    return microbatches


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 4), seed=st.integers(0, 1 << 32))
def test_all_arrives_once_and_in_order_whatever_overtakes_what(size: int, seed: int):
    net, luck = Net(size), random.Random(seed)
    send_all(net, 3)
    while net.step(luck.randrange):
        pass
    assert {place: received(net, *place) for place in net.members} == {place: [0, 1, 2] for place in net.members}
    assert [member.dealer.resends for member in net.members.values()] == [0] * 2 * size


@settings(max_examples=100, deadline=None)
@given(size=st.integers(2, 4), seed=st.integers(0, 1 << 32), data=st.data())
def test_any_relays_may_die_at_any_moment(size: int, seed: int, data: st.DataObject):
    nodes = [(side, n) for side in "nf" for n in range(size)]
    dead = data.draw(st.lists(st.sampled_from(nodes), unique=True, min_size=1))
    moments = sorted(data.draw(st.lists(st.integers(0, 400), min_size=len(dead), max_size=len(dead))))
    net, luck = Net(size), random.Random(seed)
    send_all(net, 3)
    while moments or net.steps():
        if moments and (net.deliveries >= moments[0] or not net.steps()):
            moments.pop(0)
            net.kill(dead.pop())
            gone = set(nodes) - {one for one, _ in net.flying}
        else:
            net.step(luck.randrange)
    orphans = {n for side, n in gone}
    for n in set(range(size)) - orphans:
        assert (received(net, "n", n), received(net, "f", n)) == ([0, 1, 2], [0, 1, 2])
        assert net.members["n", n].dealer.first_unacknowledged == 3
    for side, n in gone:
        survivor = net.members["f" if side == "n" else "n", n]
        assert isinstance(survivor.error, PeerLostError)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(2, 4), seed=st.integers(0, 1 << 32))
def test_any_lines_may_break_and_only_the_pairs_own_one_matters(size: int, seed: int):
    net, luck = Net(size), random.Random(seed)
    send_all(net, 3)
    for _ in range(luck.randrange(300)):
        net.step(luck.randrange)
    lines = [(one, other) for one, other in net.flying if one < other]
    broken = luck.sample(lines, luck.randint(1, len(lines)))
    for one, other in broken:
        net.cut(one, other)
    while net.step(luck.randrange):
        pass
    whole = set(range(size)) - {one[1] for one, other in broken if one[0] != other[0]}
    for place, member in net.members.items():
        came = received(net, *place)
        assert came == [0, 1, 2] if place[1] in whole else isinstance(member.error, PeerLostError)


def test_a_relay_that_falls_silent_is_routed_around_and_used_again():
    net, luck = Net(2), random.Random(0)
    near, far = net.members["n", 0], net.members["f", 0]
    data = noise(200_000)
    near.send(header(), data)
    stuck = (("n", 0), ("n", 1))
    held = [near.next(1) for _ in range(30)]
    while net.step(luck.randrange):
        pass
    assert far.receive() is None
    for net.now_s in (0.0, SMALL.patience_s):
        near.look(net.now_s)
    while net.step(luck.randrange):
        pass
    message = far.receive()
    assert message is not None and message.data == data
    assert near.dealer.resends == len([item for item in held if item is not None]) > 0
    net.flying[stuck].extend(item for item in held if item is not None)
    while net.step(luck.randrange):
        pass
    assert far.gatherer.duplicates == near.dealer.resends
    assert far.receive() is None
    near.send(header(), data)
    assert near.has_work(1)


def test_shards_that_wait_for_a_path_that_broke_further_on_are_not_sent():
    net, luck = Net(2), random.Random(0)
    near = net.members["n", 0]
    data = noise(200_000)
    near.send(header(), data)
    net.cut(("n", 1), ("f", 1))
    down = net.members["n", 1].next(0)
    assert down is not None
    near.arrived(1, down[0], memoryview(down[1]), 0.0)
    assert near.next(1) is None
    while net.step(luck.randrange):
        pass
    message = net.members["f", 0].receive()
    assert message is not None and message.data == data


def test_the_receipt_says_what_the_application_has_taken():
    net, luck = Net(2), random.Random(1)
    near = net.members["n", 0]
    near.send(header(), noise(SMALL.window_bytes // 1000))
    while net.step(luck.randrange):
        pass
    assert not near.dealer.has_room(SMALL.window_bytes)
    assert net.members["f", 0].receive() is not None
    while net.step(luck.randrange):
        pass
    assert near.dealer.has_room(SMALL.window_bytes)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        pytest.param(1, Opening(number=0, header=header(), total_bytes=0), id="opening-from-a-peer"),
        pytest.param(1, Receipt(taken=0), id="receipt-from-a-peer"),
        pytest.param(0, Receipt(taken=1), id="took-more-than-was-sent"),
        pytest.param(1, Shard(owner=2, number=0, offset=0, total_bytes=0), id="shard-of-another"),
        pytest.param(0, Shard(owner=9, number=0, offset=0, total_bytes=0), id="shard-of-nobody"),
        pytest.param(1, Down(member=2), id="speaks-for-another"),
        pytest.param(0, Down(member=0), id="says-that-it-is-dead"),
        pytest.param(0, Shard(owner=0, number=0, offset=0, total_bytes=SMALL.max_buffer_bytes + 1), id="too-large"),
    ],
)
def test_what_must_not_be_said(line: int, word: Word):
    member = Member(0, range(3), job=JOB, pooling=SMALL)
    with pytest.raises(FrameError):
        member.arrived(line, wrap(JOB, word)[0], memoryview(wrap(JOB, word)[1]), 0.0)
