"""Every byte is dealt exactly once, to paths that are there, and again only if it must be."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from geotrain.transport.pool.dealing import Dealer, cut
from geotrain.transport.pool.settings import Pooling
from tests.transport.pool.cells import SMALL, noise

Dealt = dict[int, list[tuple[int, int]]]
sizes = st.integers(0, 3_000_000)


def deal(dealer: Dealer) -> Dealt:
    """Offsets and lengths by path."""
    dealt: Dealt = {path: [] for path in dealer.paths}
    for path, shard, data in dealer.deal():
        dealt[path].append((shard.offset, len(data)))
    return dealt


def covered(dealt: Dealt) -> list[tuple[int, int]]:
    return sorted(part for parts in dealt.values() for part in parts)


@given(size=st.integers(0, 1 << 32), paths=st.integers(1, 64), chunk=st.integers(4096, 1 << 22))
def test_the_cut(size: int, paths: int, chunk: int):
    pooling = Pooling(chunk_bytes=chunk, min_chunk_bytes=min(chunk, 65_536))
    got = cut(size, paths, pooling)
    assert 1 <= got <= max(chunk, pooling.min_chunk_bytes)
    if size > paths * pooling.shards_per_path * pooling.min_chunk_bytes:
        assert -(-size // got) >= 0.8 * paths * pooling.shards_per_path


@given(size=sizes, paths=st.integers(1, 6), me=st.integers(0, 5))
def test_every_byte_goes_once(size: int, paths: int, me: int):
    dealer = Dealer(me % paths, range(paths), replace(SMALL, path_bytes=1 << 30))
    dealer.add(noise(size))
    ends = [0]
    for offset, length in covered(deal(dealer)):
        assert offset == ends[-1]
        ends.append(offset + length)
    assert ends[-1] == size


@given(size=st.integers(200_000, 3_000_000), paths=st.integers(1, 6))
def test_equal_paths_carry_equal_parts(size: int, paths: int):
    dealer = Dealer(0, range(paths), replace(SMALL, path_bytes=1 << 30))
    dealer.add(noise(size))
    dealt = deal(dealer)
    carried = [sum(length for _, length in parts) for parts in dealt.values()]
    # A byte for each shard and path: whole numbers do not divide evenly.
    assert max(carried) - min(carried) <= len(covered(dealt)) + paths


@given(size=sizes, dead=st.sets(st.integers(1, 4)), late=st.sets(st.integers(1, 4)))
def test_any_relays_dead_before_or_after(size: int, dead: set[int], late: set[int]):
    dealer = Dealer(0, range(5), replace(SMALL, path_bytes=1 << 30))
    for path in dead:
        dealer.lost(path)
    dealer.add(noise(size))
    dealt = deal(dealer)
    assert not dead & {path for path, parts in dealt.items() if parts}
    kept = {path: parts for path, parts in dealt.items() if path not in late}
    for path in late:
        dealer.lost(path)
    assert covered({**kept, **{-path - 1: parts for path, parts in deal(dealer).items()}}) == covered(dealt)
    assert set(dealer.paths) == set(range(5)) - dead - late


def test_a_full_path_gets_no_more_until_something_arrived():
    pooling = Pooling(chunk_bytes=4096, min_chunk_bytes=4096, path_bytes=8192)
    dealer = Dealer(0, range(2), pooling)
    dealer.add(noise(40_960))
    assert deal(dealer) == {0: [(0, 4096), (8192, 4096)], 1: [(4096, 4096), (12288, 4096)]}
    assert deal(dealer) == {0: [], 1: []}
    dealer.acknowledged(0, 4096, 1, 0.0)
    assert deal(dealer) == {0: [], 1: [(16384, 4096)]}


def test_what_is_small_goes_without_relays():
    dealer = Dealer(1, range(3), SMALL)
    dealer.add(noise(4096))
    assert deal(dealer) == {0: [], 1: [(0, 4096)], 2: []}


PATIENT = replace(SMALL, patience_s=1.0)
NOTHING: Dealt = {0: [], 1: []}


def test_a_path_is_silent_only_if_others_deliver():
    dealer = Dealer(0, range(2), PATIENT)
    dealer.add(noise(65_536))
    deal(dealer)
    dealer.look(100.0)
    assert deal(dealer) == NOTHING
    for n in range(5):
        dealer.look(100.0 + n / 4)
        assert deal(dealer) == NOTHING
        dealer.acknowledged(0, n * 8192, 0, 100.0 + n / 4)
    dealer.look(101.0)
    assert deal(dealer) == {0: [(4096 + n * 8192, 4096) for n in range(8)], 1: []}
    dealer.acknowledged(0, 4096, 1, 101.0)
    dealer.add(noise(65_536))
    assert [bool(parts) for parts in deal(dealer).values()] == [True, True]


def test_the_last_path_that_owes_something_is_waited_for_only_so_long():
    dealer = Dealer(0, range(2), PATIENT)
    dealer.add(noise(8192))
    assert deal(dealer) == {0: [(0, 4096)], 1: [(4096, 4096)]}
    dealer.acknowledged(0, 0, 0, 10.0)
    dealer.look(10.0)
    assert deal(dealer) == NOTHING
    dealer.look(10.9)
    assert deal(dealer) == NOTHING
    dealer.look(11.0)
    assert deal(dealer) == {0: [(4096, 4096)], 1: []}


def test_a_path_whose_next_buffer_waits_for_its_turn_is_not_silent():
    dealer = Dealer(0, range(2), PATIENT)
    for _ in range(2):
        dealer.add(noise(8192))
    deal(dealer)
    dealer.acknowledged(0, 4096, 1, 0.0)
    dealer.acknowledged(0, 0, 0, 0.1)
    dealer.look(50.0)
    assert deal(dealer) == NOTHING


def test_nor_are_paths_that_pause_in_a_buffer_because_another_pipeline_goes_first():
    dealer = Dealer(0, range(2), PATIENT)
    dealer.add(noise(65_536))
    deal(dealer)
    dealer.acknowledged(0, 0, 0, 0.0)
    for second in range(1, 50):
        dealer.look(float(second))
    dealer.acknowledged(0, 8192, 0, 50.0)
    dealer.look(50.0)
    dealer.acknowledged(0, 4096, 1, 50.1)
    dealer.look(50.2)
    assert deal(dealer) == NOTHING
