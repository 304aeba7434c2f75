"""The search: never worse than any named schedule, within limits, and what comes out is plain lists."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from geotrain.errors import DoesNotFitError
from geotrain.schedule import Orders, check
from geotrain.simulation import simulate
from geotrain.simulation.auto import auto
from geotrain.simulation.play import play
from geotrain.simulation.problem import Problem
from geotrain.simulation.simulate import poolings
from tests.simulation.plans import make_plan
from tests.simulation.test_invariants import cases


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_never_worse_than_any_named_schedule(case: dict[str, Any]) -> None:
    best = simulate(make_plan(**case, schedule="auto"))
    assert best.step_time_s >= best.bound.total_s * (1 - 1e-9)
    for name in ("gpipe", "1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "atlas"):
        assert best.step_time_s <= simulate(make_plan(**case, schedule=name)).step_time_s * (1 + 1e-12)


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_what_comes_out_are_lists_that_pass_the_checker(case: dict[str, Any]) -> None:
    problem = Problem(make_plan(**case, schedule="auto", cap=3))
    found = auto(problem, poolings(problem))
    orders = found.played.schedule
    assert isinstance(orders, Orders)
    check(orders, problem.shape)
    again = play(problem, orders, found.played.wiring.pooled)
    assert (again.actions == found.played.actions).all()
    steps = [gain.step_s for gain in found.gains]
    assert steps == sorted(steps, reverse=True)
    assert problem.seconds(np.array(found.played.step_ticks)) <= steps[-1]


@given(case=cases())
@settings(max_examples=10, deadline=None)
def test_same_plan_same_schedule(case: dict[str, Any]) -> None:
    first, second = (simulate(make_plan(**case, schedule="auto")) for _ in range(2))
    assert first.gains == second.gains
    assert (first.timeline.actions.start_s == second.timeline.actions.start_s).all()


@pytest.mark.parametrize(("hop", "ideal"), [(1, 59), (2, 61), (5, 67), (10, 77)])
def test_one_slow_hop_is_hidden_by_warm_up(hop: float, ideal: float) -> None:
    """Four stages, F = 1, B = 2, 16 microbatches: strict 1F1B takes 73, 89, 137, 217."""
    plan = make_plan(
        forward=[1] * 4, backward=[2] * 4, occupancy=[None, 0.0, None], latency=[0, hop, 0], microbatches=16,
        schedule="auto",
    )  # fmt: skip
    assert simulate(plan).step_time_s * 1e3 <= 1.03 * ideal


def test_memory_that_holds_nothing_is_refused() -> None:
    plan = make_plan(
        forward=[1], backward=[2], microbatches=2, schedule="auto", activation_bytes=100, gpu_memory="50 B"
    )
    with pytest.raises(DoesNotFitError, match=r"stage 0 needs 100 B per GPU, the test in 'dc0' has 50 B"):
        simulate(plan)
