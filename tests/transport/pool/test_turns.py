"""Whose turn it is follows from the shards alone, and is the same everywhere."""

from hypothesis import given
from hypothesis import strategies as st

from geotrain.transport.pool.turns import Turns, planned, turn
from geotrain.transport.pool.words import Shard, wrap
from tests.transport.pool.cells import JOB


def shard(owner: int, number: int, offset: int = 0) -> Shard:
    return Shard(owner=owner, number=number, offset=offset, total_bytes=100)


def drain(turns: Turns) -> list[tuple[int, int]]:
    order = []
    while (entry := turns.pop()) is not None:
        assert entry[0] is not None
        order.append((entry[0].number, entry[0].owner))
    return order


@given(st.permutations([shard(owner, number) for owner in range(4) for number in range(4)]))
def test_all_members_agree_whatever_came_first(shards: list[Shard]):
    turns = Turns(JOB)
    for one in shards:
        turns.put(one, memoryview(b""))
    assert drain(turns) == [(number, owner) for number in range(4) for owner in range(4)]


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 6)))
def test_the_plan_is_least_sent_first_then_lowest_pipeline(counts: dict[int, int]):
    sends = {owner: [(owner, number) for number in range(count)] for owner, count in counts.items()}
    sent = dict.fromkeys(counts, 0)
    expected = []
    while waiting := [owner for owner in counts if sent[owner] < counts[owner]]:
        best = min(waiting, key=lambda owner: (sent[owner], owner))
        expected.append((best, sent[best]))
        sent[best] += 1
    assert planned(sends) == expected
    assert planned(sends) == sorted(expected, key=lambda entry: turn(shard(*entry)))


def test_a_late_pipeline_is_not_waited_for_and_then_goes_first():
    turns = Turns(JOB)
    for offset in (0, 50):
        turns.put(shard(1, 0, offset), memoryview(b""))
    first = turns.pop()
    turns.put(shard(0, 0), memoryview(b""))
    assert first is not None and first[0] == shard(1, 0, 0)
    assert drain(turns) == [(0, 0), (0, 1)]


def test_words_go_before_shards_and_shards_are_passed_on_as_they_came():
    turns = Turns(JOB)
    data = memoryview(b"data")
    header = wrap("another", shard(1, 2))[0]
    turns.put(shard(1, 2), data, header)
    turns.say(header, b"word")
    assert turns.shard_bytes == 4
    assert turns.pop() == (None, (header, b"word"))
    entry = turns.pop()
    assert entry is not None and entry[1][0] is header and entry[1][1] is data
    assert turns.pop() is None


def test_a_line_that_is_gone_takes_nothing():
    turns = Turns(JOB)
    turns.put(shard(0, 0), memoryview(b"data"))
    turns.close()
    turns.put(shard(0, 1), memoryview(b"data"))
    turns.say(wrap(JOB, shard(0, 0))[0], b"")
    assert (turns.pop(), turns.shard_bytes, bool(turns)) == (None, 0, False)
