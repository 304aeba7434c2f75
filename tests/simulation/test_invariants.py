"""What must hold for any plan, and what must never happen."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from geotrain.schedule import check
from geotrain.simulation import run as run_plan
from geotrain.simulation import simulate
from geotrain.simulation.play import play
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Result
from geotrain.timeline import Timeline
from tests.simulation.plans import BYTES, make_plan

SCHEDULES = ["gpipe", "1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "atlas", "interleaved"]
TENTHS = st.integers(1, 50).map(lambda tenths: tenths / 10)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Unequal stages, any WAN boundaries, both sharings, recompute or not, links that are too thin for all."""
    stages = draw(st.integers(1, 7))
    each = st.lists(TENTHS, min_size=stages, max_size=stages)
    occupancy = draw(st.lists(st.one_of(st.none(), TENTHS), min_size=stages - 1, max_size=stages - 1))
    backward = draw(each)
    return {
        "forward": draw(each),
        "backward": backward,
        "weight": [b * draw(st.sampled_from([0.0, 0.3, 0.5])) for b in backward],
        "recompute": draw(st.one_of(st.none(), each)),
        "occupancy": occupancy,
        "latency": [0.0 if o is None else draw(st.integers(0, 80)) / 10 for o in occupancy],
        "microbatches": draw(st.integers(1, 12)),
        "pipelines": draw(st.integers(1, 4)),
        "cells": draw(st.integers(1, 3)),
        "capacity": draw(st.one_of(st.none(), st.sampled_from([0.3, 1.0, 2.5]))),
        "sharing": draw(st.sampled_from(["spatial", "temporal"])),
    }


def run(schedule: str, case: dict[str, Any], **more: Any) -> Result:
    if schedule == "interleaved":
        stages = len(case["forward"])
        more |= {"interleave": 2, "stages": None}
        plan = make_plan(
            **case, schedule="1f1b", **{k: v for k, v in more.items() if k not in ("interleave", "stages")}
        )
        doubled = [stage.model_copy(update={"layers": 2}) for stage in plan.stages]
        model = plan.job.model.model_copy(update={"layers": 2 * stages})
        job = plan.job.model_copy(update={"model": model})
        return simulate(plan.change(job=job, stages=doubled, schedule="interleaved", interleave=2))
    return simulate(make_plan(**case, schedule=schedule, **more))


def assert_one_thing_at_a_time(timeline: Timeline) -> None:
    actions = timeline.actions
    order = np.lexsort((actions.start_s, timeline.slot_of_action))
    slot = timeline.slot_of_action[order]
    same = slot[1:] == slot[:-1]
    assert (actions.start_s[order][1:][same] >= actions.end_s[order][:-1][same] - 1e-12).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_no_step_breaks_the_laws(schedule: str, case: dict[str, Any]) -> None:
    result = run(schedule, case)
    timeline, plan = result.timeline, result.plan
    assert result.step_time_s >= result.bound.total_s * (1 - 1e-9)
    assert result.gpu_utilization + result.bubble_fraction == pytest.approx(1)
    shares = result.shares
    assert sum(vars(shares).values()) == pytest.approx(1)
    assert min(vars(shares).values()) >= 0
    assert_one_thing_at_a_time(timeline)

    # Every byte crosses once in each direction.
    crossings = sum(plan.crosses_wan(s, s + 1) for s in range(len(plan.stages) - 1)) * plan.interleave
    if plan.interleave > 1 and plan.crosses_wan(0, len(plan.stages) - 1):
        crossings += plan.interleave - 1
    expected = 2 * crossings * plan.num_microbatches * plan.num_pipelines * BYTES
    assert sum(link.size_bytes for link in result.links) == expected
    dcs = np.array([stage.dc for stage in plan.stages])
    moved = timeline.transfers
    on_wan = dcs[moved.source] != dcs[moved.target]
    if schedule != "interleaved":  # whose way back to the first data center is instant in these plans
        assert on_wan.sum() * timeline.copies * plan.cells * BYTES == expected
    assert (moved.end_s >= moved.start_s).all() and (moved.arrive_s >= moved.end_s).all()


@given(case=cases(), cap=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_atlas_is_never_slower_than_varuna(case: dict[str, Any], cap: int) -> None:
    case = case | {"sharing": "temporal"}
    atlas = run("atlas", case, cap=cap)
    for sharing in ("spatial", "temporal"):
        varuna = run("varuna", case | {"sharing": sharing}, cap=cap)
        assert atlas.step_time_s <= varuna.step_time_s


@pytest.mark.parametrize("schedule", ["1f1b", "varuna", "atlas", "zero-bubble", "zero-bubble-2p"])
@given(case=cases(), cap=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_the_cap_on_microbatches_in_flight_holds(schedule: str, case: dict[str, Any], cap: int) -> None:
    result = run(schedule, case, cap=cap)
    assert result.timeline.peak_in_flight().max() <= cap


@pytest.mark.parametrize("schedule", ["1f1b", "varuna", "atlas", "zero-bubble", "zero-bubble-2p"])
@given(case=cases(), room=st.integers(1, 6), kept=st.sampled_from([0.4, 1.0, 2.0]))
@settings(max_examples=40, deadline=None)
def test_memory_is_a_hard_limit(schedule: str, case: dict[str, Any], room: int, kept: float) -> None:
    memory = {"gpu_memory": f"{room * 1000 + 500} B", "activation_bytes": 1000, "weight_grad_bytes": kept * 1000}
    result = run(schedule, case, **memory)
    assert result.step_time_s >= result.bound.total_s * (1 - 1e-9)
    for stage in result.memory:
        assert stage.total_bytes <= stage.limit_bytes


@pytest.mark.parametrize("schedule", ["varuna", "zero-bubble", "atlas"])
@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_rules_leave_lists_that_play_the_same(schedule: str, case: dict[str, Any]) -> None:
    """What the rules decided passes the checker and, played as fixed lists, gives the same step."""
    plan = make_plan(**case | {"sharing": "spatial"}, schedule=schedule)
    problem = Problem(plan)
    played, _ = run_plan(plan)
    orders = played.orders()
    check(orders, problem.shape)
    replayed = play(problem, orders, frozenset())
    if case["recompute"] is None:
        assert sorted(replayed.actions.T.tolist()) == sorted(played.actions.T.tolist())
    assert replayed.step_ticks <= played.step_ticks  # a list may recompute before the gradient has set out


@given(case=cases())
@settings(max_examples=20, deadline=None)
def test_same_inputs_same_bytes(case: dict[str, Any]) -> None:
    first, second = run("atlas", case), run("atlas", case)
    assert first.step_time_s == second.step_time_s
    assert (first.timeline.actions.start_s == second.timeline.actions.start_s).all()
    assert (first.timeline.transfers.arrive_s == second.timeline.transfers.arrive_s).all()


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_pooled_transfers_take_turns(case: dict[str, Any]) -> None:
    """One at a time per boundary and direction, lowest microbatch first among those that wait."""
    assume(case["pipelines"] > 1 and any(o is not None for o in case["occupancy"]))
    result = run("varuna", case | {"sharing": "temporal", "capacity": None})
    moved = result.timeline.transfers
    for source, target in set(zip(moved.source.tolist(), moved.target.tolist(), strict=True)):
        mine = (moved.source == source) & (moved.target == target)
        start, end = moved.start_s[mine], moved.end_s[mine]
        assert (start[1:] >= end[:-1] - 1e-12).all()


def test_a_link_that_is_too_thin_is_shared_by_all_cells() -> None:
    """Two pipelines, two cells, a capacity of half a pair: a transfer takes eight times as long."""
    plan = make_plan(
        forward=[1, 1], backward=[1, 1], occupancy=[2.0], latency=[0], microbatches=1,
        pipelines=2, cells=2, capacity=0.25, schedule="gpipe",
    )  # fmt: skip
    result = simulate(plan)
    assert result.timeline.transfers.end_s[0] - result.timeline.transfers.start_s[0] == pytest.approx(16e-3)
    assert result.step_time_s == pytest.approx((1 + 16 + 1 + 1 + 16 + 1) * 1e-3)
