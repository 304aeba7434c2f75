"""What members say, to headers and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.transport import Direction, FrameError, Header
from geotrain.transport.pool.words import Down, Opening, Place, Receipt, Shard, unwrap, wrap
from tests.transport.pool.cells import JOB, header

members = st.integers(0, (1 << 16) - 1)
numbers = st.integers(0, (1 << 64) - 1)
offsets = st.integers(0, (1 << 32) - 1)
words = st.one_of(
    st.builds(Shard, owner=members, number=numbers, offset=st.just(7), total_bytes=st.integers(7, (1 << 32) - 1)),
    st.builds(Opening, number=numbers, header=st.just(header(3, 4)), total_bytes=offsets),
    st.builds(
        Receipt, taken=numbers, places=st.lists(st.builds(Place, numbers, offsets, members), max_size=9).map(tuple)
    ),
    st.builds(Down, member=members),
)
headers = st.builds(
    Header,
    job=st.just(JOB),
    step=numbers,
    pipeline=st.integers(0, 9 << 16),
    stage=offsets,
    microbatch=offsets,
    direction=st.sampled_from(Direction),
)


@given(words)
def test_what_is_wrapped_unwraps(word):
    header, data = wrap(JOB, word)
    assert unwrap(Header.unpack(header.pack()), memoryview(data)) == word


@given(headers, st.binary(max_size=200))
def test_anything_else_is_refused_or_makes_sense(header: Header, data: bytes):
    try:
        word = unwrap(header, memoryview(data))
    except FrameError:
        return
    assert isinstance(word, Shard | Opening | Receipt | Down)


def test_a_shard_beyond_its_buffer():
    beyond, _ = wrap(JOB, Shard(owner=0, number=0, offset=5, total_bytes=10))
    with pytest.raises(FrameError, match=r"^6 bytes at 5 of 10: a shard beyond its buffer$"):
        unwrap(beyond, memoryview(b"123456"))
