import os
import random
from contextlib import suppress

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from geotrain.transport.checksum import checksum
from geotrain.transport.errors import FrameError, VersionError
from geotrain.transport.frame import (
    FRAME_BYTES,
    LEAST_FRAME_BYTES,
    VERSION,
    Bye,
    Data,
    Frame,
    Status,
    decode,
    encode,
    frame_bytes,
)
from geotrain.transport.header import Direction, Header
from tests.transport.strategies import frames

FUZZ_ROUNDS = int(os.environ.get("GEOTRAIN_FUZZ_ROUNDS", "20000"))


def sealed(wire: bytearray) -> bytes:
    """The frame with its checksum made right again."""
    return bytes(wire[:-4]) + checksum(wire[:-4]).to_bytes(4, "little")


@given(frames)
def test_a_frame_comes_back_as_it_was(frame: Frame):
    wire = encode(frame)
    assert len(wire) == frame_bytes(wire[:LEAST_FRAME_BYTES])
    assert decode(wire) == frame


@given(st.sampled_from([LEAST_FRAME_BYTES, FRAME_BYTES]).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
def test_random_bytes_are_no_frame(wire: bytes):
    with pytest.raises(FrameError):
        decode(wire)


@given(frames, st.integers(0, 2 * FRAME_BYTES))
def test_another_size_is_no_frame(frame: Frame, size_bytes: int):
    wire = encode(frame)
    assume(size_bytes != len(wire))
    with pytest.raises(FrameError):
        decode(wire[:size_bytes].ljust(size_bytes, b"\0"))


@given(frames, st.integers(0, FRAME_BYTES - 1), st.integers(1, 255))
def test_one_changed_byte_is_noticed(frame: Frame, place: int, change: int):
    wire = bytearray(encode(frame))
    wire[place % len(wire)] ^= change
    with pytest.raises(FrameError):
        decode(wire)


@given(frames, st.data())
@example(Status(acknowledged=0, taken=0, connections=0), None)
def test_a_frame_made_by_hand_is_what_it_says_or_an_error(frame: Frame, data: st.DataObject | None):
    wire = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 4)) if data else 0):
        assert data
        wire[data.draw(st.integers(4, len(wire) - 5))] = data.draw(st.integers(0, 255))
    forged = sealed(wire)
    try:
        parsed = decode(forged)
    except FrameError:
        return
    assert encode(parsed) == forged


def test_fuzz_with_right_checksums():
    """The same without hypothesis, for as many rounds as GEOTRAIN_FUZZ_ROUNDS says."""
    luck = random.Random(1)
    seeds = [encode(Status(acknowledged=1, taken=2, connections=3)), encode(Bye(sent=1, reason="over"))]
    for _ in range(FUZZ_ROUNDS):
        wire = bytearray(luck.choice(seeds))
        if len(wire) == FRAME_BYTES:
            wire[5] = luck.randrange(6)
        for _ in range(luck.randrange(1, 100)):
            wire[luck.randrange(8, len(wire) - 4)] = luck.choice([0, 1, 255, luck.randrange(256)])
        forged = sealed(wire)
        with suppress(FrameError):
            assert encode(decode(forged)) == forged


@pytest.mark.parametrize(
    "place",
    [
        pytest.param({"offset": 5, "total_bytes": 100, "chunk_bytes": 10}, id="between two pieces"),
        pytest.param({"offset": 100, "total_bytes": 100, "chunk_bytes": 10}, id="behind the end"),
        pytest.param({"offset": 0, "total_bytes": 100, "chunk_bytes": 0}, id="no pieces"),
    ],
)
def test_a_piece_that_is_no_part_of_its_buffer_is_no_frame(place):
    header = Header(job="j", step=0, pipeline=0, stage=0, microbatch=0, direction=Direction.FORWARD)
    with pytest.raises(FrameError, match="makes no sense"):
        decode(encode(Data(header=header, number=0, checksum=0, **place)))


def test_another_version_is_named():
    wire = bytearray(encode(Status(acknowledged=0, taken=0, connections=1)))
    wire[4] = VERSION + 1
    with pytest.raises(
        VersionError, match=rf"^speaks version {VERSION + 1} of the protocol, this side speaks {VERSION}$"
    ):
        decode(sealed(wire))


def test_a_reason_is_cut_to_what_fits_and_made_printable():
    wire = encode(Bye(sent=0, reason="line\n" + "ä" * 100))
    frame = decode(wire)
    assert isinstance(frame, Bye)
    assert frame.reason == "line" + "ä" * 58
