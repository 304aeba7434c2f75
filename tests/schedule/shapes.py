"""Shapes for tests: any pipeline that a fixed order may be made for."""

from collections.abc import Sequence

from hypothesis import strategies as st

from geotrain.action import Kind
from geotrain.schedule import Orders, Shape


def shape(
    stages: int, microbatches: int, *, chunks: int = 1, recompute: bool = False, room: Sequence[int] = ()
) -> Shape:
    """With room for everything, unless it is given."""
    return Shape(
        num_stages=stages,
        num_microbatches=microbatches,
        num_chunks=chunks,
        recompute=recompute,
        room=tuple(room) or (microbatches * chunks,) * stages,
    )


@st.composite
def shapes(draw: st.DrawFn, *, short_of_room: bool = False) -> Shape:
    """One chunk per slot; room for everything, or for any number from one up, slot by slot."""
    stages, microbatches = draw(st.integers(1, 7)), draw(st.integers(1, 12))
    room = draw(st.lists(st.integers(1, 9), min_size=stages, max_size=stages)) if short_of_room else ()
    return shape(stages, microbatches, recompute=draw(st.booleans()), room=room)


def peaks(orders: Orders) -> list[int]:
    """Per slot: most microbatch chunks between F and B."""
    peaks = []
    for slot in orders:
        held = [0]
        for action in slot:
            held.append(held[-1] + {Kind.F: 1, Kind.B: -1}.get(action.kind, 0))
        peaks.append(max(held))
    return peaks


def recomputed(orders: Orders) -> list[list[int]]:
    """Per slot: the microbatches that are recomputed, in that order."""
    return [[action.microbatch for action in slot if action.kind == Kind.R] for slot in orders]
