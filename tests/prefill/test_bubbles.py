"""Idle time and free memory of every slot, from simulated and from measured steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.action import Kind
from geotrain.cost import stage_costs
from geotrain.plan import Plan
from geotrain.prefill.bubbles import Bubbles, bubbles
from geotrain.simulation import rehearse, run
from geotrain.timeline import Timeline
from geotrain.training.measured import gather
from tests.simulation.plans import make_plan
from tests.simulation.prefill.test_steps import make
from tests.simulation.test_invariants import cases
from tests.training.runs import record, simulated

SCHEDULES = ["gpipe", "1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "atlas", "interleaved"]


def found(plan: Plan, timeline: Timeline) -> Bubbles:
    memory = [plan.datacenter_of(stage).gpu.memory_bytes for stage in range(len(plan.stages))]
    return bubbles(timeline, stage_costs(plan), memory)


def assert_time_adds_up(timeline: Timeline, plan: Plan) -> Bubbles:
    """Work, windows and what ends a step are the step; no window is in anybody's way."""
    cell, step_s = found(plan, timeline), timeline.step_time_s
    assert cell.step_time_s == step_s
    assert cell.num_slots == timeline.num_pipelines * timeline.num_stages
    reduce_s = np.tile(timeline.update_start_s - timeline.reduce_start_s, timeline.num_pipelines)
    assert timeline.busy_s.ravel() + reduce_s + cell.idle_s == pytest.approx(np.full(cell.num_slots, step_s))
    for slot in range(cell.num_slots):
        rows, stage = timeline.slot_of_action == slot, slot % timeline.num_stages
        order = np.argsort(timeline.actions.start_s[rows], kind="stable")
        starts = [*timeline.actions.start_s[rows][order], timeline.reduce_start_s[stage]]
        ends = [*timeline.actions.end_s[rows][order], timeline.update_end_s[stage]]
        opens, closes = cell.start_s[cell.of(slot)], cell.end_s[cell.of(slot)]
        assert cell.position[cell.of(slot)].tolist() == list(range(len(starts)))
        assert closes.tolist() == starts
        assert opens[1:].tolist() == ends[:-1]
        assert opens[0] == pytest.approx(ends[-1] - step_s)
        assert (closes - opens >= -1e-9).all()
    return cell


def left_bytes(plan: Plan, timeline: Timeline, slot: int) -> list[float]:
    """Counted microbatch by microbatch: before every action, and before the all-reduce."""
    costs, actions, last = stage_costs(plan), timeline.actions, len(plan.stages) * plan.interleave - 1
    rows = np.flatnonzero(timeline.slot_of_action == slot)
    split = Kind.W in actions.kind[rows]
    mine = [cost.memory for cost in costs[slot % timeline.num_stages :: timeline.num_stages]]
    apart = max(m.workspace_bytes - (m.recomputed_bytes if split else 0) for m in mine)
    limit = plan.datacenter_of(slot % timeline.num_stages).gpu.memory_bytes - apart - sum(m.static_bytes for m in mine)
    holds: dict[tuple[int, int], float] = {}
    left = [limit]
    for row in rows:
        stage, kind = int(actions.stage[row]), Kind(int(actions.kind[row]))
        key, memory = (stage, int(actions.microbatch[row])), costs[stage].memory
        again = memory.recomputed_bytes if split else 0.0
        if kind is Kind.F:
            holds[key] = memory.activation_bytes + (again if stage == last else 0)
        elif kind is Kind.R:
            holds[key] += again
        elif kind is Kind.I:
            holds[key] = memory.weight_grad_bytes
        else:
            del holds[key]
        left.append(limit - sum(holds.values()))
    assert not holds
    return left


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(case=cases(), sizes=st.lists(st.integers(1, 9), min_size=3, max_size=3))
@settings(max_examples=15)
def test_windows_and_memory_of_any_step(schedule: str, case: dict[str, Any], sizes: list[int]) -> None:
    activation, weight_grad, workspace = (float(size << 30) for size in sizes)
    more = {"activation_bytes": activation, "weight_grad_bytes": weight_grad, "workspace_bytes": workspace}
    plan = make(schedule, case | more | {"gpu_memory": "4000 GiB"})
    _, result = rehearse(*run(plan))
    cell = assert_time_adds_up(result.timeline, plan)
    for slot in range(cell.num_slots):
        free = cell.free_bytes[cell.of(slot)]
        assert free == pytest.approx(left_bytes(plan, result.timeline, slot), rel=1e-6)
        memory = result.memory[slot % len(plan.stages)]
        assert free.min() >= (memory.limit_bytes - memory.total_bytes) * (1 - 1e-6)


def test_a_split_backward_keeps_what_its_second_half_needs() -> None:
    """With recompute a microbatch is small until its input gradient, and large until its weight gradient."""
    plan = make_plan(
        forward=[1] * 3, backward=[4] * 3, weight=[2] * 3, recompute=[1] * 3, occupancy=[1.0] * 2, latency=[4] * 2,
        microbatches=6, schedule="auto", activation_bytes=1 << 30, weight_grad_bytes=8 << 30,
    )  # fmt: skip
    _, result = rehearse(*run(plan))
    cell = found(plan, result.timeline)
    for slot in range(3):
        assert cell.free_bytes[cell.of(slot)] == pytest.approx(left_bytes(plan, result.timeline, slot))
    assert cell.free_bytes.min() <= (80 - 8) * (1 << 30)


def test_windows_of_one_forward_and_one_backward() -> None:
    """Stage 0: F at 0-1 ms, B at 15-17 ms. Stage 1: F at 6-7, B at 7-9; 1 ms on the wire, 4 ms on the way."""
    plan = make_plan(forward=[1, 1], backward=[2, 2], occupancy=[1.0], latency=[4], microbatches=1, activation_bytes=8)
    _, result = rehearse(*run(plan))
    cell = found(plan, result.timeline)
    assert cell.step_time_s == pytest.approx(16e-3)
    assert cell.first.tolist() == [0, 3, 6]
    assert cell.start_s == pytest.approx(np.array([0, 1, 16, -7, 7, 9]) / 1e3)
    assert cell.end_s == pytest.approx(np.array([0, 14, 16, 6, 7, 9]) / 1e3)
    assert ((80 << 30) - cell.free_bytes).tolist() == [0, 8, 0, 0, 8, 0]
    assert cell.idle_s == pytest.approx([13e-3, 13e-3])


@pytest.mark.parametrize("schedule", ["1f1b", "atlas", "zero-bubble"])
def test_windows_of_a_measured_run(schedule: str, tmp_path: Path) -> None:
    plan = make_plan(
        forward=[1, 2, 1], backward=[2, 3, 2], recompute=[1, 1, 1], occupancy=[1.0, None], latency=[4, 0],
        microbatches=4, pipelines=2, cells=2, schedule=schedule,
    )  # fmt: skip
    record(simulated(plan), tmp_path, stretch=(1.0, 1.2, 0.9))
    measured = gather(tmp_path)
    assert measured.origin == "measured"
    for _, timeline in measured.steps:
        assert timeline.num_pipelines == 4
        cell = assert_time_adds_up(timeline, plan)
        assert cell.free_bytes[cell.of(0)] == pytest.approx(left_bytes(plan, timeline, 0))
