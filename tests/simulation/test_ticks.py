"""Times of any size fit into ticks: no figure wraps around, is negative or is not a number."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.planner import find_plan
from geotrain.reports.step import result_json
from geotrain.simulation import run, spread
from geotrain.simulation.jitter import DISTRIBUTIONS, Jitter
from geotrain.simulation.play import Board, Variation
from geotrain.simulation.prefill.steps import Steps
from geotrain.simulation.prefill.weather import Weather
from geotrain.simulation.problem import Problem
from geotrain.workload import Job
from tests.simulation.plans import make_plan

H100S = {"nodes": 1, "gpus_per_node": 8, "gpu": "h100", "fabric": {"rate": "400 Gbit/s"}}
SLOW_WAN = {
    "datacenters": [{"name": "a", **H100S}, {"name": "b", **H100S}],
    "wan": {"default": {"rtt": "40 ms", "pair_cap": "10 Mbit/s"}},
}
LLAMA = {"model": "llama-3.1-8b", "microbatches": 32}
REPLICAS: dict[str, Any] = {
    "cluster": SLOW_WAN,
    "job": LLAMA,
    "tensor_parallel": 8,
    "stages": [{"dc": "a", "layers": 32}],
    "replicas": [{"dc": "b", "cells": 1}],
    "schedule": "1f1b",
}


def plan_of(content: dict[str, Any]) -> Plan:
    return Plan.parse(content, source=Path("plan.yaml"))


def figures_in(answer: object) -> list[float]:
    """All numbers of a JSON answer."""
    if isinstance(answer, dict):
        return [number for value in answer.values() for number in figures_in(value)]
    if isinstance(answer, list):
        return [number for value in answer for number in figures_in(value)]
    return [answer] if isinstance(answer, int | float) else []


def test_gradients_that_need_hours_over_a_slow_wan_take_hours():
    result = run(plan_of(REPLICAS))[1]
    # 8 billion parameters of 2 bytes, once each way, at 1.25 MB/s.
    assert result.step_time_s == pytest.approx(2 * 8.03e9 / 1.25e6, rel=0.01)


def test_a_plan_that_takes_hours_is_not_the_best():
    best = find_plan(Cluster.model_validate(SLOW_WAN), Job.model_validate(LLAMA)).best.result
    assert not best.plan.replicas
    assert 0 < best.step_time_s < 60


MAGNITUDES = st.integers(-6, 6).flatmap(lambda power: st.integers(1, 99).map(lambda tenths: tenths / 10 * 10.0**power))
"""Twelve orders of magnitude around one."""


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    """A plan through two data centers or with replicas, whose times, sizes and rates have nothing to do with sense."""
    stages, with_replicas = draw(st.integers(1, 3)), draw(st.booleans())
    link = {
        "rtt": draw(MAGNITUDES),
        "pair_cap": draw(MAGNITUDES) * 1e6,
        **({"capacity": draw(MAGNITUDES) * 1e6} if draw(st.booleans()) else {}),
        **({"tcp_window": draw(MAGNITUDES) * 1e6} if draw(st.booleans()) else {}),
    }
    gpu = {"name": "test", "bf16": 1e15, "fp16": 1e15, "fp32": 1e15, "memory": 1e30, "memory_bandwidth": 1e12}
    dc = {"nodes": 64, "gpu": gpu, "price_per_gpu_hour": 2, "fabric": {"rate": draw(MAGNITUDES) * 1e6}}
    backward = draw(MAGNITUDES)
    stage = {"forward_s": draw(MAGNITUDES), "backward_s": backward, "weight_grad_s": backward / 3}
    where = ["a"] * stages if with_replicas else ["a", "b", "a"][:stages]
    return {
        "cluster": {"datacenters": [{"name": "a", **dc}, {"name": "b", **dc}], "wan": {"default": link}},
        "job": {
            "model": {"layers": stages, "hidden": 64, "heads": 2, "vocab": 100},
            "sequence": 16,
            "microbatches": draw(st.sampled_from([1, 3, 8, 200])),
            "recompute": draw(st.booleans()),
            "profile": {
                "stage": stage,
                "boundary_bytes": draw(MAGNITUDES) * 1e6,
                "gradient_bytes": draw(MAGNITUDES) * 1e6,
                "optimizer_s": draw(MAGNITUDES),
            },
        },
        "stages": [{"dc": name, "layers": 1} for name in where],
        "replicas": [{"dc": "b", "cells": 2}] if with_replicas else [],
        "cells": draw(st.integers(1, 2)),
        "pipelines_per_cell": draw(st.integers(1, 3)),
        "schedule": draw(st.sampled_from(["gpipe", "1f1b", "varuna", "zero-bubble", "atlas"])),
        "wan": {"sharing": draw(st.sampled_from(["spatial", "temporal"]))},
    }


@given(content=contents())
@settings(max_examples=150)
def test_any_magnitude_gives_figures_that_make_sense(content: dict[str, Any]):
    played, result = run(plan_of(content))
    assert result.step_time_s > 0
    assert result.step_time_s >= result.bound.total_s * (1 - 1e-9) - 1e-12
    assert result.step_time_s <= played.problem.longest_s * (1 + 1e-9)
    assert all(math.isfinite(number) and number >= 0 for number in figures_in(result_json(result)))
    timeline = result.timeline
    assert (timeline.actions.end_s >= timeline.actions.start_s).all()
    assert (timeline.transfers.arrive_s >= timeline.transfers.start_s).all()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("seconds", [2850.0, 2.85e7])
def test_steps_of_hours_may_vary(distribution: Any, seconds: float):
    # One slot, and just short enough for its ticks: the plan itself leaves nothing to spare.
    plan = make_plan(forward=[seconds * 400], backward=[seconds * 600], microbatches=1)
    played, result = run(plan)
    varied = spread(played, Jitter(compute=1.0, wan=1.0, step=0.5, distribution=distribution, samples=20))
    assert result.step_time_s == pytest.approx(seconds)
    assert seconds / 100 < varied.mean_s < seconds * 100
    assert seconds / 100 < varied.p50_s <= varied.p99_s < seconds * 100


def test_delays_that_cannot_be_counted_are_refused():
    played, _ = run(make_plan(forward=[1.0], backward=[2.0], microbatches=2))
    step = Steps(played, Weather()).play(0, 0.0)
    step.hold(0, 0, 100.0)
    assert step.length_s == pytest.approx(100.006)
    with pytest.raises(InputError, match="too long to be simulated"):
        step.hold(0, 0, 1e9)
    with pytest.raises(InputError, match="too long to be simulated"):
        Board(played.problem, frozenset()).play(
            played.orders(), Variation(actions=np.full((5, 2), 1e12), transfers=np.ones((2, 2)))
        )


@pytest.mark.parametrize("field", ["optimizer_s", "gradient_bytes", "boundary_bytes"])
def test_a_step_of_ages_is_refused_in_one_sentence(field: str):
    plan = plan_of({**REPLICAS, "job": {**LLAMA, "profile": {field: 1e30}}, "pipelines_per_cell": 1})
    if field == "boundary_bytes":
        stages = [{"dc": "a", "layers": 16}, {"dc": "b", "layers": 16}]
        plan = plan.change(stages=stages, replicas=[])
    with pytest.raises(InputError, match=r"a step may take .* s and must take at most 1e\+18 s"):
        run(plan)


def test_more_actions_than_memory_holds_are_refused():
    with pytest.raises(InputError, match="1000000000 microbatches, 1 stage and 1 pipeline make 2000000000 actions"):
        Problem(make_plan(forward=[1.0], backward=[1.0], microbatches=1_000_000_000)).shape  # noqa: B018


def test_the_planner_says_why_nothing_can_be_simulated():
    job = Job.model_validate({**LLAMA, "microbatches": 1_000_000_000})
    with pytest.raises(InputError, match="a simulated step has at most 50000000"):
        find_plan(Cluster.model_validate(SLOW_WAN), job)
