"""One checker for every order: what can be played passes, and any one mistake is refused by its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import ScheduleError
from geotrain.schedule import Orders, Shape, check
from geotrain.schedule.gpipe import gpipe
from geotrain.schedule.one_f_one_b import one_f_one_b
from tests.schedule.shapes import peaks, shape, shapes

FUSED = """\
0F0 0F1 0R0 0B0 0R1 0B1
1F0 1B0 1F1 1B1"""
SPLIT = """\
0F0 0F1 0R0 0I0 0W0 0R1 0I1 0W1
1F0 1I0 1F1 1I1 1W0 1W1"""
RECOMPUTE = shape(2, 2, recompute=True, room=[2, 1])
PLAIN = shape(2, 2, room=[2, 2])


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        pytest.param(FUSED, RECOMPUTE, id="fused"),
        pytest.param(SPLIT, RECOMPUTE, id="split"),
        pytest.param("0F0 0R0 0F1 0B0 0R1 0B1\n1F0 1B0 1F1 1B1", RECOMPUTE, id="recompute-early"),
        pytest.param("0F0 0F1 0B1 0B0\n1F0 1F1 1B1 1B0", PLAIN, id="no-recompute"),
        pytest.param("0F0 0F1 0B0 0I1 0W1\n1F0 1B0 1F1 1B1", PLAIN, id="some-split"),
        pytest.param("0F0 2F0 2B0 0B0\n1F0 3F0 3B0 1B0", shape(2, 1, chunks=2), id="chunks"),
        pytest.param("0F0 1F0 1B0 0B0", shape(1, 1, chunks=2), id="chunks-of-one-slot"),
    ],
)
def test_what_can_be_played_passes(text: str, limits: Shape):
    check(Orders.parse(text), limits)


@pytest.mark.parametrize(
    ("text", "old", "new", "limits", "sentence"),
    [
        pytest.param(
            FUSED,
            "\n1F0 1B0 1F1 1B1",
            "",
            RECOMPUTE,
            "the schedule has 1 slot, the plan has 2 stages",
            id="slot-missing",
        ),
        pytest.param(FUSED, "0F1 ", "", RECOMPUTE, "slot 0: 0F1 is missing", id="forward-missing"),
        pytest.param(
            FUSED,
            " 1B1",
            "",
            RECOMPUTE,
            "slot 1: stage 1, microbatch 1 needs either B or both I and W, it has none",
            id="backward-missing",
        ),
        pytest.param(FUSED, "0F1", "0F1 0F1", RECOMPUTE, "slot 0, position 2: 0F1 comes twice", id="forward-twice"),
        pytest.param(FUSED, "0B0", "0B0 0R0", RECOMPUTE, "slot 0, position 4: 0R0 comes twice", id="recompute-twice"),
        pytest.param(
            FUSED, "0F1", "1F1", RECOMPUTE, "slot 0, position 1: 1F1 belongs to another slot", id="other-slot"
        ),
        pytest.param(
            FUSED, "0F1", "2F1", RECOMPUTE, "slot 0, position 1: 2F1 belongs to another slot", id="no-such-stage"
        ),
        pytest.param(
            FUSED,
            "1F1",
            "1F2",
            RECOMPUTE,
            "slot 1, position 2: 1F2 names microbatch 2, the last is 1",
            id="no-such-microbatch",
        ),
        pytest.param(
            FUSED,
            "1F1 1B1",
            "1B1 1F1",
            RECOMPUTE,
            "slot 1, position 2: 1B1 comes before 1F1",
            id="backward-before-forward",
        ),
        pytest.param(
            FUSED,
            "0R1 0B1",
            "0B1 0R1",
            RECOMPUTE,
            "slot 0, position 4: 0B1 comes before 0R1",
            id="backward-before-recompute",
        ),
        pytest.param(
            FUSED,
            "0F0 0F1 0R0",
            "0R0 0F0 0F1",
            RECOMPUTE,
            "slot 0, position 0: 0R0 comes before 0F0",
            id="recompute-before-forward",
        ),
        pytest.param(
            SPLIT, "0I1 0W1", "0W1 0I1", RECOMPUTE, "slot 0, position 6: 0W1 comes before 0I1", id="weight-before-input"
        ),
        pytest.param(
            SPLIT,
            "1I0",
            "1B0 1I0",
            RECOMPUTE,
            "slot 1: stage 1, microbatch 0 needs either B or both I and W, it has B and I and W",
            id="whole-and-both-halves",
        ),
        pytest.param(
            FUSED,
            "0B1",
            "0B1 0I1",
            RECOMPUTE,
            "slot 0: stage 0, microbatch 1 needs either B or both I and W, it has B and I",
            id="whole-and-input-half",
        ),
        pytest.param(
            SPLIT,
            " 1W1",
            "",
            RECOMPUTE,
            "slot 1: stage 1, microbatch 1 needs either B or both I and W, it has I",
            id="only-input-half",
        ),
        pytest.param(
            SPLIT,
            "1I1 ",
            "",
            RECOMPUTE,
            "slot 1: stage 1, microbatch 1 needs either B or both I and W, it has W",
            id="only-weight-half",
        ),
        pytest.param(FUSED, "0R1 ", "", RECOMPUTE, "slot 0, position 4: 0B1 lacks 0R1", id="recompute-missing"),
        pytest.param(
            SPLIT, "0R0 ", "", RECOMPUTE, "slot 0, position 2: 0I0 lacks 0R0", id="recompute-missing-before-a-half"
        ),
        pytest.param(
            FUSED,
            "1F0 1B0 1F1 1B1",
            "1F0 1F1 1B1 1B0",
            shape(2, 2, recompute=True),
            "slot 1, position 3: 1B0 lacks 1R0",
            id="recompute-missing-on-the-last-stage",
        ),
        pytest.param(
            "0F0 0B0\n1F0 1B0",
            "",
            "",
            shape(2, 1, recompute=True),
            "slot 0, position 1: 0B0 lacks 0R0",
            id="recompute-missing-though-nothing-came-between",
        ),
        pytest.param(
            FUSED, "", "", PLAIN, "slot 0, position 2: 0R0, but the job does not recompute", id="recompute-unasked"
        ),
        pytest.param(
            FUSED,
            "",
            "",
            shape(2, 2, recompute=True, room=[1, 1]),
            "slot 0, position 1: 0F1 makes 2 microbatches in flight, there is room for 1",
            id="over-room",
        ),
        pytest.param(
            "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1",
            "",
            "",
            PLAIN,
            "slot 0, position 1: 0B0 waits for ever; the slots wait for each other",
            id="deadlock",
        ),
        pytest.param(
            "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n2F0 2F1 2B0 2B1",
            "",
            "",
            shape(3, 2),
            "slot 0, position 2: 0B0 waits for ever; the slots wait for each other",
            id="deadlock-further-down",
        ),
    ],
)
def test_one_mistake_is_refused_by_its_place(text: str, old: str, new: str, limits: Shape, sentence: str):
    spoilt = text.replace(old, new) if old else text
    with pytest.raises(ScheduleError) as caught:
        check(Orders.parse(spoilt), limits)
    assert str(caught.value) == sentence


SCHEDULES = st.sampled_from([gpipe, one_f_one_b])


@given(SCHEDULES, shapes(), st.randoms(use_true_random=False))
def test_no_action_may_be_left_out_or_done_twice(schedule, limits: Shape, random):
    slots = [[action.code for action in slot] for slot in schedule(limits)]
    slot = random.choice(slots)
    action = slot.pop(random.randrange(len(slot)))
    with pytest.raises(ScheduleError):
        check(Orders.of(slots), limits)
    slot += [action, action]
    with pytest.raises(ScheduleError):
        check(Orders.of(slots), limits)


@given(SCHEDULES, shapes(), st.randoms(use_true_random=False))
def test_room_is_enough_exactly_when_the_peak_fits(schedule, limits: Shape, random):
    orders = schedule(limits)
    needed = peaks(orders)
    check(orders, shape(limits.num_stages, limits.num_microbatches, recompute=limits.recompute, room=needed))
    short = random.randrange(limits.num_stages)
    needed[short] -= 1
    with pytest.raises(
        ScheduleError, match=rf"^slot {short}, position \d+: {short}F\d+ makes .* room for {needed[short]}$"
    ):
        check(orders, shape(limits.num_stages, limits.num_microbatches, recompute=limits.recompute, room=needed))


def test_only_one_microbatch_is_recomputed_at_a_time():
    with pytest.raises(ScheduleError, match=r"slot 0, position 3: 0R1 comes before the backward of 0R0"):
        check(Orders.parse("0F0 0R0 0F1 0R1 0B0 0B1\n1F0 1B0 1F1 1B1"), RECOMPUTE)
