from hypothesis import given

from geotrain.schedule import Shape, check
from geotrain.schedule.one_f_one_b import one_f_one_b
from tests.schedule.shapes import peaks, recomputed, shape, shapes


def test_warm_up_then_one_forward_one_backward_then_drain():
    assert str(one_f_one_b(shape(2, 3))) == (
        "0F0 0F1 0B0 0F2 0B1 0B2\n"
        "1F0 1B0 1F1 1B1 1F2 1B2"
    )  # fmt: skip


def test_the_last_stage_never_recomputes():
    assert str(one_f_one_b(shape(2, 3, recompute=True))) == (
        "0F0 0F1 0R0 0B0 0F2 0R1 0B1 0R2 0B2\n"
        "1F0 1B0 1F1 1B1 1F2 1B2"
    )  # fmt: skip


def test_where_memory_is_short_it_warms_up_less_from_there_on():
    assert str(one_f_one_b(shape(4, 3, room=[3, 1, 4, 4]))) == (
        "0F0 0F1 0F2 0B0 0B1 0B2\n"
        "1F0 1B0 1F1 1B1 1F2 1B2\n"
        "2F0 2B0 2F1 2B1 2F2 2B2\n"
        "3F0 3B0 3F1 3B1 3F2 3B2"
    )  # fmt: skip


@given(shapes(short_of_room=True))
def test_any_room_can_be_played(limits: Shape):
    check(one_f_one_b(limits), limits)


@given(shapes(short_of_room=True))
def test_a_stage_holds_as_many_as_stages_are_left_unless_it_or_one_before_is_short(limits: Shape):
    left = [
        min(limits.num_microbatches, limits.num_stages - s, *limits.room[: s + 1]) for s in range(limits.num_stages)
    ]
    assert peaks(one_f_one_b(limits)) == left


@given(shapes(short_of_room=True))
def test_recompute_follows_the_rule_in_any_shape(limits: Shape):
    before_last = [list(range(limits.num_microbatches)) if limits.recompute else []] * (limits.num_stages - 1)
    assert recomputed(one_f_one_b(limits)) == [*before_last, []]
