import pytest
from hypothesis import given

from geotrain.schedule import Shape
from geotrain.schedule.zero_bubble import zero_bubble, zero_bubble_2p
from tests.schedule.shapes import shape, shapes

BOTH = pytest.mark.parametrize(
    ("schedule", "factor"),
    [pytest.param(zero_bubble, 1, id="zero-bubble"), pytest.param(zero_bubble_2p, 2, id="zero-bubble-2p")],
)


@BOTH
@given(limits=shapes(short_of_room=True))
def test_no_rules_run_further_ahead_or_hold_more_than_room_and_the_memory_of_1f1b(schedule, factor: int, limits: Shape):
    most = [min(factor * limits.num_stages, room) for room in limits.room]
    for rules in schedule(limits):
        assert rules.split
        assert list(rules.hold) == most
        assert len(rules.ahead) == limits.num_stages
        assert all(1 <= ahead <= limit for ahead, limit in zip(rules.ahead, most, strict=True))


def test_the_first_rules_go_ahead_by_the_way_to_the_last_stage_and_back():
    plenty = shape(4, 99)
    assert zero_bubble(plenty)[0].ahead == (4, 3, 2, 1)
    assert zero_bubble_2p(plenty)[0].ahead == (7, 5, 3, 1)
