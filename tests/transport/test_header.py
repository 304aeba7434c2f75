from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.transport.errors import FrameError
from geotrain.transport.header import HEADER_BYTES, Direction, Header
from tests.transport.strategies import headers


@given(headers)
def test_a_header_comes_back_as_it_was(header: Header):
    wire = header.pack()
    assert len(wire) == HEADER_BYTES
    assert Header.unpack(wire) == header


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_any_bytes_are_a_header_or_an_error(wire: bytes):
    try:
        header = Header.unpack(wire)
    except FrameError:
        return
    assert Header.unpack(header.pack()) == header


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        pytest.param("job", "", "job '' must be 1 to 40 bytes of printable text", id="no job"),
        pytest.param("job", "ä" * 21, "must be 1 to 40 bytes", id="long job"),
        pytest.param("job", "a\nb", "must be 1 to 40 bytes of printable text", id="two lines"),
        pytest.param("step", -1, "step -1 must be at least 0 and below 2**64", id="negative"),
        pytest.param("stage", 2**32, "stage 4294967296 must be at least 0 and below 2**32", id="too large"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(field: str, value: str | int, complaint: str):
    fields: dict[str, Any] = {
        "job": "j",
        "step": 0,
        "pipeline": 0,
        "stage": 0,
        "microbatch": 0,
        "direction": Direction.FORWARD,
    }
    with pytest.raises(ValueError) as error:
        Header(**{**fields, field: value})
    assert complaint in str(error.value)
