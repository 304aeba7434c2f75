from hypothesis import given

from geotrain.schedule import Shape, check
from geotrain.schedule.gpipe import gpipe
from tests.schedule.shapes import peaks, recomputed, shape, shapes


def test_all_forwards_then_all_backwards_in_reverse():
    assert str(gpipe(shape(2, 3))) == (
        "0F0 0F1 0F2 0B2 0B1 0B0\n"
        "1F0 1F1 1F2 1B2 1B1 1B0"
    )  # fmt: skip


def test_recompute_spares_only_the_last_microbatch_on_the_last_stage():
    assert str(gpipe(shape(2, 3, recompute=True))) == (
        "0F0 0F1 0F2 0R2 0B2 0R1 0B1 0R0 0B0\n"
        "1F0 1F1 1F2 1B2 1R1 1B1 1R0 1B0"
    )  # fmt: skip


@given(shapes())
def test_any_shape_can_be_played_and_holds_the_whole_step(limits: Shape):
    orders = gpipe(limits)
    check(orders, limits)
    assert peaks(orders) == [limits.num_microbatches] * limits.num_stages


@given(shapes())
def test_recompute_follows_the_rule_in_any_shape(limits: Shape):
    everything = list(range(limits.num_microbatches))[::-1]
    before_last = [everything] * (limits.num_stages - 1)
    expected = [*before_last, everything[1:]] if limits.recompute else [[]] * limits.num_stages
    assert recomputed(gpipe(limits)) == expected
