"""Shards in any order, more than once, of several buffers: handed over whole, in order, once."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.transport import FrameError
from geotrain.transport.pool.gathering import Gatherer
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.pool.words import Opening, Shard
from tests.transport.pool.cells import SMALL, header, noise

LIMITED = Pooling(max_buffer_bytes=10_000, window_bytes=15_000)


def shard(number: int, offset: int, total_bytes: int) -> Shard:
    return Shard(owner=0, number=number, offset=offset, total_bytes=total_bytes)


@given(
    sizes=st.lists(st.integers(0, 500), max_size=5),
    chunk=st.integers(1, 200),
    copies=st.integers(1, 3),
    luck=st.randoms(),
)
def test_any_order_any_copies(sizes: list[int], chunk: int, copies: int, luck: random.Random):
    gatherer = Gatherer(SMALL)
    buffers = [noise(size, number) for number, size in enumerate(sizes)]
    shards = [(n, offset) for n, size in enumerate(sizes) for offset in range(0, max(1, size), chunk)]
    events = [*shards * copies, *((n, -1) for n in range(len(sizes)))]
    luck.shuffle(events)
    came = []
    for n, offset in events:
        if offset < 0:
            gatherer.opened(Opening(number=n, header=header(microbatch=n), total_bytes=sizes[n]))
        else:
            gatherer.land(shard(n, offset, sizes[n]), buffers[n][offset : offset + chunk])
        while (message := gatherer.pop()) is not None:
            came.append(message)
    assert [message.header.microbatch for message in came] == list(range(len(sizes)))
    assert [bytes(message.data) for message in came] == [bytes(buffer) for buffer in buffers]
    assert gatherer.duplicates == len(shards) * (copies - 1)


def test_pieces_that_contradict_each_other():
    gatherer = Gatherer(SMALL)
    gatherer.land(shard(0, 0, 10), noise(5))
    with pytest.raises(FrameError, match=r"^parts of buffer 0 contradict each other: 10 or 11$"):
        gatherer.land(shard(0, 5, 11), noise(5))
    with pytest.raises(FrameError, match=r"^shards of buffer 0 overlap$"):
        gatherer.land(shard(0, 2, 10), noise(8))


def test_more_than_the_window_is_refused_before_memory_is_taken():
    gatherer = Gatherer(LIMITED)
    with pytest.raises(FrameError, match=r"^a buffer of 10001 bytes, at most 10000 are accepted$"):
        gatherer.land(shard(0, 0, 10_001), noise(1))
    gatherer.land(shard(0, 0, 9000), noise(1))
    with pytest.raises(FrameError, match=r"^sends more than the window of 15000 bytes$"):
        gatherer.land(shard(1, 0, 9000), noise(1))
