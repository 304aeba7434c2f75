import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import DoesNotFitError
from geotrain.schedule import Shape, check
from geotrain.schedule.interleaved import interleaved
from tests.schedule.shapes import peaks, recomputed, shape


def test_microbatches_go_through_the_chunks_in_groups():
    assert str(interleaved(shape(2, 4, chunks=2))) == (
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"
    )


def test_only_the_models_last_stage_goes_straight_from_forward_to_backward():
    assert str(interleaved(shape(2, 2, chunks=2, recompute=True))) == (
        "0F0 0F1 2F0 2F1 2R0 2B0 2R1 2B1 0R0 0B0 0R1 0B1\n"
        "1F0 1F1 3F0 3B0 3F1 3B1 1R0 1B0 1R1 1B1"
    )  # fmt: skip


stages = st.integers(1, 8)
chunks = st.integers(2, 4)


def assert_played_as_1f1b(limits: Shape) -> None:
    """It passes the checker, and the model's last stage alone needs no recompute."""
    orders = interleaved(limits)
    check(orders, limits)
    again = limits.num_microbatches * limits.recompute
    before_last = [again * limits.num_chunks] * (limits.num_stages - 1)
    assert [len(slot) for slot in recomputed(orders)] == [*before_last, again * (limits.num_chunks - 1)]


@given(stages, chunks, st.integers(1, 4), st.booleans())
def test_whole_groups_can_be_played(stages: int, chunks: int, groups: int, recompute: bool):
    assert_played_as_1f1b(shape(stages, groups * stages, chunks=chunks, recompute=recompute))


@given(stages, chunks, st.integers(1, 24), st.booleans())
def test_a_last_group_that_is_short_can_be_played(stages: int, chunks: int, microbatches: int, recompute: bool):
    assert_played_as_1f1b(shape(stages, microbatches, chunks=chunks, recompute=recompute))


@given(stages, chunks, st.integers(1, 4), st.data())
def test_it_needs_room_for_its_warm_up_and_one_more(stages: int, chunks: int, groups: int, data: st.DataObject):
    total = groups * stages * chunks
    needed = [min(total, 2 * (stages - 1 - s) + (chunks - 1) * stages + 1) for s in range(stages)]
    limits = shape(stages, groups * stages, chunks=chunks, room=needed)
    orders = interleaved(limits)
    check(orders, limits)
    assert peaks(orders) == needed

    short = data.draw(st.integers(0, stages - 1))
    needed[short] -= 1
    with pytest.raises(DoesNotFitError) as caught:
        interleaved(shape(stages, groups * stages, chunks=chunks, room=needed))
    assert str(caught.value) == (
        f"interleaved needs room for {needed[short] + 1} microbatch chunks on stage {short}, "
        f"there is room for {needed[short]}"
    )
