"""Step after step, with luck and with holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.simulation import DISTRIBUTIONS, Jitter, run
from geotrain.simulation.jitter import Distribution
from geotrain.simulation.play import Played
from geotrain.simulation.prefill.steps import Step, Steps, Trigger
from geotrain.simulation.prefill.weather import Spell, Weather
from tests.simulation.plans import make_plan
from tests.simulation.test_invariants import cases

SCHEDULES = ["gpipe", "1f1b", "varuna", "zero-bubble", "atlas", "interleaved"]
CALM = Weather()
ROUGH = Weather(jitter=Jitter(compute=0.1, wan=0.3, step=0.05, distribution="heavy", seed=7))


def make(schedule: str, case: dict[str, Any]) -> Plan:
    if schedule != "interleaved":
        return make_plan(**case, schedule=schedule)
    plan = make_plan(**case, schedule="1f1b")
    model = plan.job.model.model_copy(update={"layers": 2 * len(plan.stages)})
    return plan.change(
        job=plan.job.model_copy(update={"model": model}),
        stages=[stage.model_copy(update={"layers": 2}) for stage in plan.stages],
        schedule="interleaved",
        interleave=2,
    )


def play(schedule: str, case: dict[str, Any]) -> Played:
    return run(make(schedule, case))[0]


def two_by_two(**more: Any) -> Plan:
    """Two stages, two pipelines, two microbatches; 1 ms over the WAN and 4 ms on the way."""
    given: dict[str, Any] = {"occupancy": [1.0], "latency": [4], "pipelines": 2} | more
    return make_plan(forward=[1, 1], backward=[2, 2], microbatches=2, **given)


def flat(table: list[list[float]]) -> np.ndarray:
    return np.concatenate([np.array(row) for row in table])


def times(step: Step) -> tuple[list[list[float]], list[list[float]], float]:
    return step.starts_s, step.ends_s, step.length_s


def some_place(step: Step, draw: st.DataObject, *, last: bool = True) -> tuple[int, int]:
    slot = draw.draw(st.integers(0, len(step.starts_s) - 1), label="slot")
    return slot, draw.draw(st.integers(0, len(step.starts_s[slot]) - (1 if last else 2)), label="position")


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_the_steady_step_is_the_plan_s(schedule: str, case: dict[str, Any]) -> None:
    case = case | {"recompute": None}  # a list may recompute before the gradient has set out
    played = play(schedule, case)
    timeline, steps = played.timeline(), Steps(played, CALM)
    assert steps.num_slots == len(case["forward"]) * case["pipelines"]
    assert steps.steady.length_s == pytest.approx(timeline.step_time_s, abs=1e-12)
    assert steps.steady.undisturbed_s == steps.steady.length_s == steps.timeline.step_time_s
    for slot in range(steps.num_slots):
        rows = timeline.slot_of_action == slot % (timeline.num_pipelines * timeline.num_stages)
        stage = slot % timeline.num_stages
        starts = [*timeline.actions.start_s[rows], timeline.reduce_start_s[stage]]
        ends = [*timeline.actions.end_s[rows], timeline.update_end_s[stage]]
        assert steps.steady.starts_s[slot] == pytest.approx(starts, abs=1e-12)
        assert steps.steady.ends_s[slot] == pytest.approx(ends, abs=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(case=cases(), number=st.integers(0, 5), delay_s=st.floats(0, 0.02), draw=st.data())
@settings(max_examples=40, deadline=None)
def test_a_hold_changes_nothing_that_came_before(
    schedule: str, case: dict[str, Any], number: int, delay_s: float, draw: st.DataObject
) -> None:
    steps = Steps(play(schedule, case), ROUGH)
    step = steps.play(number, 0.0)
    for _ in range(draw.draw(st.integers(0, 3))):
        step.hold(*some_place(step, draw, last=False), draw.draw(st.floats(0, 0.01)))
    slot, position = some_place(step, draw)
    step.hold(slot, position, 0.0)
    starts, ends, _ = times(step)
    step.hold(slot, position, delay_s)

    assert step.starts_s[slot][position] == starts[slot][position]
    assert step.ends_s[slot][position] == pytest.approx(ends[slot][position] + delay_s, abs=1e-12)
    last = position == len(starts[slot]) - 1
    news_s = starts[slot][position] if last else ends[slot][position]
    for other in range(steps.num_slots):
        for place, (start, end) in enumerate(zip(starts[other], ends[other], strict=True)):
            if start >= news_s:
                assert step.starts_s[other][place] >= news_s
            else:
                assert step.starts_s[other][place] == start
                assert step.ends_s[other][place] == end or (other, place) == (slot, position)
    assert step.length_s == flat(step.ends_s).max()
    assert step.undisturbed_s == steps.play(number, 0.0).length_s


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "atlas", "zero-bubble"])
@given(case=cases(), number=st.integers(0, 5), draw=st.data())
@settings(max_examples=40, deadline=None)
def test_where_nobody_takes_turns_a_hold_makes_nothing_earlier(
    schedule: str, case: dict[str, Any], number: int, draw: st.DataObject
) -> None:
    step = Steps(play(schedule, case | {"sharing": "spatial", "capacity": None}), ROUGH).play(number, 0.0)
    held_s = {}
    for _ in range(draw.draw(st.integers(1, 4))):
        place = some_place(step, draw)
        step.hold(*place, 0.0)
        starts, ends, _ = times(step)
        held_s[place] = draw.draw(st.floats(0, 0.02))
        step.hold(*place, held_s[place])
        assert (flat(step.starts_s) >= flat(starts)).all() and (flat(step.ends_s) >= flat(ends)).all()
    assert step.undisturbed_s <= step.length_s <= step.undisturbed_s + sum(held_s.values()) + 1e-12


def test_taking_turns_the_others_may_come_first() -> None:
    """The first microbatch of pipeline 0 is late, so that of pipeline 1 has the channel sooner than planned."""
    step = Steps(run(two_by_two(sharing="temporal"))[0], CALM).steady
    planned = step.starts_s[3][0]
    step.hold(0, 0, 5e-3)
    assert step.starts_s[3][0] < planned
    assert step.length_s > step.undisturbed_s


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(case=cases(), draw=st.data())
@settings(max_examples=20, deadline=None)
def test_a_hold_that_is_taken_back_leaves_no_trace(schedule: str, case: dict[str, Any], draw: st.DataObject) -> None:
    steps = Steps(play(schedule, case), ROUGH)
    step, untouched = steps.play(3, 0.0), steps.play(3, 0.0)
    place = some_place(step, draw)
    step.hold(*place, 0.0)
    assert times(step) == times(untouched)
    step.hold(*place, 1.0)
    assert times(step) != times(untouched)
    step.hold(*place, 0.0)
    assert times(step) == times(untouched)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(case=cases(), draw=st.data())
@settings(max_examples=20, deadline=None)
def test_nothing_starts_before_its_trigger_has_ended(schedule: str, case: dict[str, Any], draw: st.DataObject) -> None:
    steps = Steps(play(schedule, case), ROUGH)
    step = steps.play(1, 0.0)
    step.hold(*some_place(step, draw), 0.01)
    for slot, triggers in enumerate(steps.triggers):
        assert len(triggers) == len(step.starts_s[slot])
        for position, trigger in enumerate(triggers):
            if trigger is not None:
                assert trigger.slot != slot
                assert step.ends_s[trigger.slot][trigger.position] <= step.starts_s[slot][position]


def test_triggers_are_the_neighbour_s_actions_and_the_twin_s_last() -> None:
    """1F1B: stage 0 does 0F0 0F1 0B0 0B1, stage 1 does 1F0 1B0 1F1 1B1."""
    steps = Steps(run(two_by_two(sharing="spatial"))[0], CALM)
    way_s = 4e-3
    assert steps.triggers == [
        [None, None, Trigger(1, 1, way_s), Trigger(1, 3, way_s), Trigger(2, 3, 0.0)],
        [Trigger(0, 0, way_s), None, Trigger(0, 1, way_s), None, Trigger(3, 3, 0.0)],
        [None, None, Trigger(3, 1, way_s), Trigger(3, 3, way_s), Trigger(0, 3, 0.0)],
        [Trigger(2, 0, way_s), None, Trigger(2, 1, way_s), None, Trigger(1, 3, 0.0)],
    ]


def test_a_lone_pipeline_has_nobody_to_wait_for_at_the_end() -> None:
    steps = Steps(run(two_by_two(pipelines=1))[0], CALM)
    assert [triggers[-1] for triggers in steps.triggers] == [None, None]


def test_one_slot_holds_up_its_stage_s_all_reduce_everywhere() -> None:
    step = Steps(run(two_by_two(sharing="spatial"))[0], CALM).steady
    starts, ends, length_s = times(step)
    step.hold(3, 4, 2e-3)
    step.hold(1, 4, 1e-3)
    assert step.starts_s == starts
    assert [row[-1] for row in step.ends_s] == pytest.approx([ends[0][-1], ends[1][-1] + 2e-3] * 2)
    assert [row[:-1] for row in step.ends_s] == [row[:-1] for row in ends]
    assert step.length_s == max(length_s, ends[1][-1] + 2e-3)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_luck_is_in_the_seed_and_the_number(distribution: Distribution) -> None:
    played, _ = run(two_by_two())
    jitter = Jitter(compute=0.1, wan=0.2, step=0.02, distribution=distribution)
    steps, again = (Steps(played, Weather(jitter=jitter)) for _ in range(2))
    other = Steps(played, Weather(jitter=replace(jitter, seed=1)))
    assert times(steps.play(5, 0.0)) == times(again.play(5, 100.0))
    assert len({each.play(number, 0.0).length_s for each in (steps, other) for number in range(10)}) == 20


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_step_s_own_spread_scales_all_of_it(distribution: Distribution) -> None:
    played, _ = run(two_by_two())
    steps = Steps(played, Weather(jitter=Jitter(compute=0, wan=0, step=0.02, distribution=distribution)))
    lengths = []
    for number in range(400):
        step = steps.play(number, 0.0)
        lengths.append(step.length_s / steps.steady.length_s)
        assert flat(step.ends_s) == pytest.approx(flat(steps.steady.ends_s) * lengths[-1])
    assert np.mean(lengths) == pytest.approx(1, abs=0.005)
    assert np.std(lengths) == pytest.approx(0.02, rel=0.5)
    step.hold(0, 0, 1.5e-3)
    assert step.ends_s[0][0] - step.starts_s[0][0] == pytest.approx(1e-3 * lengths[-1] + 1.5e-3)


def test_a_spell_on_the_wan_makes_transfers_longer_while_it_lasts() -> None:
    """Stage 1 starts after 1 ms of forward, 1 ms or 3 ms on the wire, 4 ms on the way."""
    played, _ = run(two_by_two(sharing="spatial"))
    steps = Steps(played, Weather(spells=(Spell(on="wan", start_s=60, end_s=120, factor=3),)))
    starts = [steps.play(0, start_s).starts_s[1][0] for start_s in (0, 60, 119.9, 120)]
    assert starts == pytest.approx([6e-3, 8e-3, 8e-3, 6e-3])


def test_a_spell_on_a_slot_makes_it_a_straggler() -> None:
    played, _ = run(two_by_two(sharing="spatial"))
    step = Steps(played, Weather(spells=(Spell(on=3, start_s=0, end_s=9, factor=1.5),))).play(0, 0.0)
    work = [sum(np.subtract(ends, starts)[:-1]) for starts, ends in zip(step.starts_s, step.ends_s, strict=True)]
    assert work == pytest.approx([6e-3, 6e-3, 6e-3, 9e-3])


def test_a_spell_on_no_slot_is_refused() -> None:
    played, _ = run(two_by_two())
    with pytest.raises(InputError, match="slot 4 and must be on one of 0 to 3"):
        Steps(played, Weather(spells=(Spell(on=4, start_s=0, end_s=9, factor=1.5),)))
