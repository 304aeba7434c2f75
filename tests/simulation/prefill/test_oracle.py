from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.simulation.prefill.oracle import Oracle, oracle


def ask(arrival_s, work_s, *, slo_s, times_s, slots_idle, shortest_s=None) -> Oracle:
    arrival, work, times, idle = (np.array(values, dtype=float) for values in (arrival_s, work_s, times_s, slots_idle))
    shortest = np.zeros(len(arrival)) if shortest_s is None else np.array(shortest_s, dtype=float)
    return oracle(arrival_s=arrival, work_s=work, shortest_s=shortest, slo_s=slo_s, times_s=times, slots_idle=idle)


def test_one_after_the_other_while_slots_are_idle():
    told = ask([0, 0, 3], [4, 2, 1], slo_s=9, times_s=[0, 2, 5, 10], slots_idle=[2, 0, 1])
    assert told.in_time.tolist() == [True, True, True]
    assert told.finish_s.tolist() == [2, 7, 8]
    assert told.used_s.tolist() == [0, 4, 4, 7]


def test_the_largest_gives_way_and_is_served_with_what_is_left():
    told = ask([0, 1, 1], [5, 2, 2], slo_s=5, times_s=[0, 20], slots_idle=[1])
    assert told.in_time.tolist() == [False, True, True]
    assert told.met == 2
    assert told.finish_s.tolist() == [9, 3, 5]
    assert told.used_s.tolist() == [0, 9]


def test_nobody_is_quicker_than_one_instance_allows():
    told = ask([0, 0], [1, 1], slo_s=5, times_s=[0, 10], slots_idle=[8], shortest_s=[4, 6])
    assert told.in_time.tolist() == [True, False]
    assert told.finish_s.tolist() == [4, 6]


def test_what_capacity_does_not_reach_never_ends():
    told = ask([0, 1, 9], [2, 3, 1], slo_s=20, times_s=[0, 1, 2], slots_idle=[3, 1])
    assert told.in_time.tolist() == [True, False, False]
    assert told.finish_s.tolist() == [pytest.approx(2 / 3), float("inf"), float("inf")]
    assert told.used_s.tolist() == [0, 2, 3]


def test_nothing_asked_and_nothing_idle():
    assert ask([], [], slo_s=1, times_s=[0, 1], slots_idle=[1]).used_s.tolist() == [0, 0]
    told = ask([0], [1], slo_s=1, times_s=[0, 1], slots_idle=[0])
    assert (told.met, told.finish_s.tolist(), told.used_s.tolist()) == (0, [float("inf")], [0, 0])


def alone(arrival_s, work_s, *, slo_s, times_s, slots_idle, shortest_s) -> bool:
    """Whether all can be in time: tried one unit of work at a time."""
    units = [at for at, idle in zip(times_s, slots_idle, strict=False) for _ in range(idle)]
    spent = 0
    for arrival, work, shortest in zip(arrival_s, work_s, shortest_s, strict=True):
        while spent < len(units) and units[spent] < arrival:
            spent += 1
        spent += work
        if spent > len(units) or units[spent - 1] + 1 > arrival + slo_s or shortest > slo_s:
            return False
    return True


@st.composite
def cases(draw: st.DrawFn):
    number = draw(st.integers(0, 7))
    columns = st.lists(st.integers(0, 14), min_size=number, max_size=number)
    works = st.lists(st.integers(1, draw(st.integers(1, 9))), min_size=number, max_size=number)
    slots_idle = draw(st.lists(st.integers(0, 3), min_size=20, max_size=20))
    return {
        "arrival_s": sorted(draw(columns)),
        "work_s": draw(works),
        "shortest_s": draw(st.lists(st.integers(0, 9), min_size=number, max_size=number)),
        "slo_s": draw(st.integers(1, 12)),
        "times_s": list(range(21)),
        "slots_idle": slots_idle,
    }


def part(case, chosen):
    columns = {name: [case[name][i] for i in chosen] for name in ("arrival_s", "work_s", "shortest_s")}
    return case | columns


@given(case=cases())
def test_no_choice_of_requests_has_more_in_time(case):
    told = ask(**case)
    everyone = range(len(case["work_s"]))
    best = max(size for size in range(len(everyone) + 1) for chosen in combinations(everyone, size)
               if alone(**part(case, chosen)))  # fmt: skip
    assert told.met == best
    assert alone(**part(case, np.flatnonzero(told.in_time).tolist()))


@given(case=cases())
def test_nothing_is_served_early_twice_or_beyond_the_capacity(case):
    told = ask(**case)
    arrival_s, work_s = np.array(case["arrival_s"], dtype=float), np.array(case["work_s"], dtype=float)
    late = told.finish_s > arrival_s + case["slo_s"] + 1e-9
    assert (late == ~told.in_time).all()
    assert (told.finish_s >= arrival_s + case["shortest_s"]).all()
    offered = np.diff(told.used_s)
    assert (offered >= -1e-9).all()
    assert (offered <= np.array(case["slots_idle"]) + 1e-9).all()
    # What has finished was worked on, and what was worked on had arrived.
    for at, used in zip(case["times_s"], told.used_s, strict=True):
        assert work_s[told.finish_s <= at].sum() - 1e-9 <= used <= work_s[arrival_s <= at].sum() + 1e-9


def test_ten_thousand_requests_in_overload():
    luck = np.random.default_rng(0)
    work_s = luck.lognormal(-2, 1, 10_000)
    arrival_s = np.sort(luck.random(10_000)) * 1000
    times_s = np.arange(0, 1010, 0.1)
    slots_idle = luck.integers(0, 2, len(times_s) - 1)  # less than a quarter of what is asked
    told = ask(arrival_s, work_s, slo_s=2, times_s=times_s, slots_idle=slots_idle)
    assert 0.5 < told.met / 10_000 < 0.7
    assert told.used_s[-1] > 0.98 * (slots_idle * 0.1).sum()
    assert work_s[told.in_time].mean() < work_s[~told.in_time].mean() / 3
