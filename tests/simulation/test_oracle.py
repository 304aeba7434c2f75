"""The exact solver: known optima, never beaten by a simulation, and what it finds can be played."""

import random

import pytest

from benchmarks.oracle import small_plan
from geotrain.errors import InputError
from geotrain.plan import ScheduleName
from geotrain.schedule import Orders, check
from geotrain.simulation import simulate
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.exact import solve
from geotrain.simulation.play import play
from geotrain.simulation.problem import Problem
from tests.simulation.plans import make_plan

NAMED: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "atlas", "auto")


@pytest.mark.parametrize(
    ("case", "best"),
    [
        pytest.param({"forward": [1], "backward": [2], "microbatches": 3}, 9, id="one-stage"),
        # F 1, over in 5, F 1, I 1, back in 5, I 1, W 1
        pytest.param({"occupancy": [2.0], "latency": [3.0], "microbatches": 1}, 15, id="there-and-back"),
        # The second stage begins at 1 and works on two microbatches for 6, whatever the first does.
        pytest.param({"microbatches": 2}, 7, id="weight-gradients-fill"),
        # One in flight: 1 + (1 + 1) + 1, twice, and the last W.
        pytest.param({"microbatches": 2, "cap": 1}, 9, id="one-in-flight"),
    ],
)
def test_small_cases_have_the_step_that_a_pencil_finds(case: dict[str, object], best: float) -> None:
    plan = make_plan(**({"forward": [1, 1], "backward": [2, 2]} | case))  # type: ignore[arg-type]
    exact = solve(Problem(plan))
    assert exact.optimal
    assert exact.step_s * 1e3 == pytest.approx(best)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_beats_it_and_what_it_finds_can_be_played(seed: int) -> None:
    plan = small_plan(random.Random(seed))
    problem = Problem(plan)
    exact = solve(problem)
    assert exact.optimal
    assert lower_bound(problem).total_s <= exact.bound_s * (1 + 1e-9)
    for name in NAMED:
        try:
            result = simulate(plan.change(schedule=name))
        except InputError:
            continue  # GPipe beyond the cap
        assert result.step_time_s >= exact.bound_s * (1 - 1e-9)
    for orders in exact.orders:
        check(orders, problem.shape)
    if len(exact.orders) == 1:
        played = play(problem, Orders(codes=exact.orders[0].codes), exact.pooled)
        assert float(problem.seconds(played.work_end).max()) <= exact.step_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(100, 130))
def test_auto_is_close_to_it(seed: int) -> None:
    plan = small_plan(random.Random(seed))
    problem = Problem(plan)
    found = simulate(plan).step_time_s
    best = solve(problem, hint_step_s=found).bound_s
    assert 1 - 1e-9 <= found / best <= 1.1
    assert lower_bound(problem).total_s <= best * (1 + 1e-9)


def test_what_is_too_large_is_refused() -> None:
    plan = make_plan(forward=[1] * 12, backward=[2] * 12, microbatches=64)
    with pytest.raises(InputError, match="make 2304 actions, the exact search takes at most 600"):
        solve(Problem(plan))
