"""The exact solver against a second model that assumes nothing, and what it finds against the simulator's rules."""

import math
import random
from collections import defaultdict
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from ortools.sat.python import cp_model

from geotrain.action import Kind
from geotrain.errors import InputError
from geotrain.plan import Plan, ScheduleName
from geotrain.schedule import Orders, check
from geotrain.simulation import simulate
from geotrain.simulation.exact import Exact, solve
from geotrain.simulation.play import play
from geotrain.simulation.problem import FORWARD, Problem
from geotrain.simulation.wiring import Wiring
from tests.simulation.plans import make_plan

NAMED: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "atlas")
F, R, I, W = Kind.F, Kind.R, Kind.I, Kind.W  # noqa: E741


def random_plan(seed: int, *, most_stages: int = 3, most_microbatches: int = 4, most_pipelines: int = 2) -> Plan:
    """Equal or unequal stages, hops, recompute with and without memory of its own, caps and memory limits, pooling."""
    rng = random.Random(seed)
    stages, pipelines = rng.randint(1, most_stages), rng.choice([1, 1, most_pipelines])

    def times(most: int) -> list[float]:
        return [rng.randint(1, most) / 10 for _ in range(stages)]

    forward, backward, recompute = times(50), times(50), times(50)
    if rng.random() < 0.5:
        forward = recompute = forward[:1] * stages
        backward = [2 * forward[0]] * stages
    hops = [rng.random() < 0.6 for _ in range(stages - 1)]
    case: dict[str, Any] = {
        "forward": forward,
        "backward": backward,
        "weight": [b * rng.choice([0.0, 0.3, 0.5]) for b in backward],
        "recompute": recompute if rng.random() < 0.5 else None,
        "occupancy": [rng.randint(1, 40) / 10 if hop else None for hop in hops],
        "latency": [rng.randint(0, 80) / 10 if hop else 0.0 for hop in hops],
        "microbatches": rng.randint(1, most_microbatches if pipelines == 1 else 2),
        "pipelines": pipelines,
        "cap": rng.choice(["auto", 1, 2, 3]),
        "sharing": "temporal",
    }
    room, kept, back = rng.choice([1, 2, 3]), rng.choice([0.4, 1.0, 1.4, 2.0]), rng.choice([0, 500, 2500])
    if rng.random() < 0.4:
        return make_plan(**case)
    back = back if case["recompute"] else 0
    memory: dict[str, Any] = {
        "gpu_memory": f"{room * 1000 + 500 + back} B",
        "activation_bytes": 1000,
        "weight_grad_bytes": kept * 1000,
    }
    plan = make_plan(**case, **memory)
    profile = plan.job.profile
    assert isinstance(profile.stage, list)
    measured = [stage.model_copy(update={"workspace_bytes": float(back)}) for stage in profile.stage]
    return plan.change(job=plan.job.model_copy(update={"profile": profile.model_copy(update={"stage": measured})}))


def in_chunks(plan: Plan) -> Plan:
    """The same plan with two stages of the model on each slot."""
    stages = [stage.model_copy(update={"layers": 2}) for stage in plan.stages]
    model = plan.job.model.model_copy(update={"layers": 2 * len(stages)})
    job = plan.job.model_copy(update={"model": model})
    return plan.change(job=job, stages=stages, interleave=2, schedule="interleaved")


# The rules one by one, without any thought about what a best schedule looks like.


def assert_level(cp: cp_model.CpModel, events: list[tuple[Any, int, Any]], most: int) -> None:
    """Whenever an event adds, all events up to then add up to `most` or less; an event may not take place."""
    for time, change, happens in events:
        if change <= 0:
            continue
        level: Any = 0
        for other, its_change, its_happens in events:
            counts = cp.new_bool_var("")
            if other is time:
                cp.add(counts == its_happens)
            else:
                before = cp.new_bool_var("")
                cp.add(other <= time).only_enforce_if(before)
                cp.add(other > time).only_enforce_if(~before)
                cp.add_min_equality(counts, [before, its_happens])
            level += its_change * counts
        cp.add(level <= most).only_enforce_if(happens)


def plainly_best_ticks(problem: Problem, pooled: frozenset[int]) -> int:
    """The shortest step with those boundaries pooled."""
    wiring, shape, ticks = Wiring(problem, pooled), problem.shape, problem.durations
    channel, occupancy, latency, _ = wiring.hop_rows()
    unit = math.gcd(*(int(t) for table in (ticks, occupancy, latency) for t in table.ravel()))
    ticks, occupancy, latency = ticks // unit, occupancy // unit, latency // unit
    slots, last = shape.num_stages, shape.num_model_stages - 1
    microbatches, pipelines = range(shape.num_microbatches), range(wiring.num_pipelines)
    everything = int(ticks.sum() + occupancy.sum() + latency.sum()) * len(microbatches) * len(pipelines)
    held = problem.held(split=True)
    limits = problem.limits(split=True)

    cp = cp_model.CpModel()
    step = cp.new_int_var(0, everything, "step")
    yes = cp.new_constant(1)
    starts: dict[tuple[Kind, int, int, int], Any] = {}
    results: dict[tuple[Kind, int, int, int], Any] = {}
    busy: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    events: dict[tuple[str, int, int], list[Any]] = defaultdict(list)
    for k, s, m in product(pipelines, range(last + 1), microbatches):
        place = (k, s % slots)
        for kind in (F, R, I, W):
            starts[kind, k, s, m] = cp.new_int_var(0, everything, "")
        f, r, i, w = (starts[kind, k, s, m] for kind in (F, R, I, W))
        f_end, r_end, i_end, w_end = (starts[kind, k, s, m] + int(ticks[kind, s]) for kind in (F, R, I, W))
        fused, recomputes = cp.new_bool_var(""), cp.new_bool_var("")
        cp.add(f_end <= i)
        cp.add(i_end <= w)
        cp.add(w_end <= step)
        cp.add(i_end == w).only_enforce_if(fused)
        cp.add(f_end <= r).only_enforce_if(recomputes)
        cp.add(r_end <= i).only_enforce_if(recomputes)
        if not shape.recompute:
            cp.add(recomputes == 0)
        elif s == last:
            cp.add(f_end == i).only_enforce_if(~recomputes)
        else:
            cp.add(recomputes == 1)
        for kind, happens in ((F, yes), (R, recomputes), (I, yes), (W, yes)):
            start, size = starts[kind, k, s, m], int(ticks[kind, s])
            busy[place].append(cp.new_optional_fixed_size_interval_var(start, size, happens, ""))
        out = cp.new_int_var(0, everything, "")
        cp.add(out == i_end).only_enforce_if(~fused)
        cp.add(out == w_end).only_enforce_if(fused)
        results[F, k, s, m], results[I, k, s, m] = f_end, out
        back, waiting = int(held[R, s]), -int(held[W, s])
        kept = waiting - int(held[I, s]) - back
        events["room", *place] += [(f, 1, yes), (out, -1, yes)]
        events["workspace", *place] += [(r, 1, recomputes), (i_end, -1, recomputes)]
        events["memory", *place] += [
            (f, kept, yes), (r, back, recomputes), (f, back, ~recomputes), (i_end, waiting - kept - back, ~fused),
            (w_end, -waiting, ~fused), (w_end, -kept - back, fused),
        ]  # fmt: skip
    for hop in problem.hops:
        kind, there = (F, hop.stage + 1) if hop.direction == FORWARD else (I, hop.stage - 1)
        at = hop.direction, hop.stage
        for k, m in product(pipelines, microbatches):
            sent = cp.new_int_var(0, everything, "")
            cp.add(results[kind, k, hop.stage, m] <= sent)
            cp.add(sent + int(occupancy[at] + latency[at]) <= starts[kind, k, there, m])
            if channel[at] >= 0:
                whose = -1 if wiring.is_pooled(hop) else k
                wire = cp.new_fixed_size_interval_var(sent, int(occupancy[at]), "")
                busy["wire", whose, int(channel[at])].append(wire)
    for intervals in busy.values():
        cp.add_no_overlap(intervals)
    for (what, _, slot), list_ in events.items():
        most = {"room": shape.room[slot], "workspace": 1, "memory": int(limits[slot])}[what]
        if sum(max(0, change) for _, change, _ in list_) > most:
            assert_level(cp, list_, most)
    cp.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(cp) == cp_model.OPTIMAL
    return int(solver.value(step)) * unit


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_a_model_that_assumes_nothing_finds_the_same_step(seed: int, chunks: int) -> None:
    if chunks == 1:
        plan = random_plan(seed, most_microbatches=3)
    else:
        plan = in_chunks(random_plan(seed, most_stages=2, most_microbatches=3, most_pipelines=1))
    problem = Problem(plan)
    wan = problem.wan_boundaries if plan.pipelines_per_cell > 1 else []
    poolings = [frozenset(chosen) for count in range(len(wan) + 1) for chosen in combinations(wan, count)]
    exact = solve(problem)
    assert exact.optimal
    best = min(plainly_best_ticks(problem, pooled) for pooled in poolings)
    assert exact.step_s == float(problem.seconds(np.array(best)))


def assert_fits(orders: Orders, problem: Problem) -> None:
    """No more in flight and no more memory than there is, whatever is fused and wherever R is left out."""
    shape, held = problem.shape, problem.held(split=True)
    limits = problem.limits(split=True)
    for slot, actions in enumerate(orders):
        in_flight = units = 0
        for stage, kind, m in actions:
            back, waiting = int(held[R, stage]), -int(held[W, stage])
            whole = waiting - int(held[I, stage])
            straight = shape.recompute and (stage, R, m) not in actions
            in_flight += {F: 1, I: -1, Kind.B: -1}.get(kind, 0)
            units += {F: whole - (0 if straight else back), R: back, I: waiting - whole, Kind.B: -whole, W: -waiting}[
                kind
            ]
            assert in_flight <= shape.room[slot]
            assert units <= limits[slot]
        assert in_flight == units == 0


def replay(exact: Exact, problem: Problem) -> float:
    codes = tuple(slot for pipeline in exact.orders for slot in pipeline.codes)
    return float(problem.seconds(np.array(play(problem, Orders(codes=codes), exact.pooled).step_ticks)))


@pytest.mark.parametrize("seed", [*range(100, 140), 1248])
def test_what_it_finds_fits_can_be_played_and_is_never_beaten(seed: int) -> None:
    plan = random_plan(seed)
    problem = Problem(plan)
    exact = solve(problem)
    assert exact.optimal and exact.gap == 0
    for orders in exact.orders:
        check(orders, problem.shape)
        assert_fits(orders, problem)
    if len(exact.orders) == 1:
        assert replay(exact, problem) <= exact.step_s
    else:  # the kernel has its own mind about whose transfer goes first on a channel that is shared
        assert replay(exact, problem) >= exact.bound_s
    for name, sharing in product(NAMED, ("spatial", "temporal")):
        try:
            result = simulate(plan.change(schedule=name, wan=plan.wan.model_copy(update={"sharing": sharing})))
        except InputError:
            continue  # it does not fit
        assert result.step_time_s >= exact.step_s * (1 - 1e-12)


@pytest.mark.parametrize(
    ("case", "best"),
    [
        # Recompute hides behind the second stage: F 1, F 1, I 1, I 1, W 1.
        pytest.param({"microbatches": 1, "recompute": [1, 1]}, 5, id="recompute-in-the-shade"),
        # But not if it takes longer: F 1, R 3, I 1, W 1.
        pytest.param({"microbatches": 1, "recompute": [3, 3]}, 6, id="long-recompute"),
        # Two transfers of 2, one after the other, there and back, beat one of 4: the last one's way is
        # F 1, its turn 2, over in 2, F 1, I 1, back in 2, I 1, W 1.
        pytest.param({"microbatches": 1, "pipelines": 2, "sharing": "temporal", "occupancy": [4.0]}, 11, id="pooled"),
        # Not where the plan keeps them apart: F 1, over in 4, F 1, I 1, back in 4, I 1, W 1.
        pytest.param({"microbatches": 1, "pipelines": 2, "occupancy": [4.0]}, 13, id="spatial"),
        # What W needs does not fit, so both stages do whole backwards, 1 + 1 + 2 + 2, one microbatch after the other.
        pytest.param(
            {"microbatches": 2, "gpu_memory": "1500 B", "activation_bytes": 1000, "weight_grad_bytes": 2000},
            12,
            id="only-fused-fits",
        ),
    ],
)
def test_known_steps(case: dict[str, Any], best: float) -> None:
    exact = solve(Problem(make_plan(**{"forward": [1, 1], "backward": [2, 2]} | case)))
    assert exact.optimal
    assert exact.step_s * 1e3 == pytest.approx(best)
    assert exact.pooled == (frozenset({0}) if "sharing" in case else frozenset())
    assert ("B" in str(exact.orders[0])) == ("gpu_memory" in case)


def test_same_input_same_answer() -> None:
    plan = random_plan(7)
    first, second = solve(Problem(plan)), solve(Problem(plan))
    assert (first.step_s, first.pooled) == (second.step_s, second.pooled)
    assert list(map(str, first.orders)) == list(map(str, second.orders))


def test_a_hint_changes_nothing_but_a_hint_that_cannot_be_is_refused() -> None:
    problem = Problem(random_plan(7))
    best = solve(problem).step_s
    assert solve(problem, hint_step_s=best).step_s == solve(problem, hint_step_s=2 * best).step_s == best
    with pytest.raises(InputError, match="no schedule comes near that"):
        solve(problem, hint_step_s=best / 2)


def test_without_time_it_claims_nothing() -> None:
    exact = solve(Problem(random_plan(7)), seconds=0)
    assert (exact.step_s, exact.optimal, exact.orders) == (math.inf, False, ())
    assert exact.gap == math.inf


def test_times_that_share_no_grid() -> None:
    """Ticks of a femtosecond and steps of minutes are cut to a coarser clock; that is not to be seen in the result."""
    case: dict[str, Any] = {"forward": [math.pi * 1e4, math.e * 1e4], "backward": [5e4 / 7, 1e5 / 3], "microbatches": 6}
    problem = Problem(make_plan(**case, occupancy=[1e4 / 9], latency=[1e4 / 11]))
    exact = solve(problem)
    assert exact.optimal
    assert replay(exact, problem) == pytest.approx(exact.step_s, rel=1e-12)


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        pytest.param({"capacity": 0.1}, "capacity of the link from dc0 to dc1 is shared", id="capacity"),
        pytest.param({"microbatches": 60}, "make 900 actions, the exact search takes at most 600", id="large"),
        pytest.param(
            {"pipelines": 2, "sharing": "temporal"},
            "4 boundaries may be pooled or not, the exact search takes at most 3",
            id="pools",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(case: dict[str, Any], complaint: str) -> None:
    usual: dict[str, Any] = {"forward": [1] * 5, "backward": [2] * 5, "occupancy": [1.0] * 4, "microbatches": 2}
    with pytest.raises(InputError, match=complaint):
        solve(Problem(make_plan(**usual | case)))


def test_every_slot_has_its_list() -> None:
    (orders,) = solve(Problem(make_plan(forward=[1, 1], backward=[2, 2], microbatches=2))).orders
    assert str(orders).splitlines()[1] == "1F0 1I0 1F1 1I1 1W0 1W1"
