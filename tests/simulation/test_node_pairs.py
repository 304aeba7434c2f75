"""No pair of nodes carries more than its cap, however many slots the nodes have."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.simulation import simulate
from geotrain.simulation.problem import Problem

CAP, BYTES = 1e9, 1e6


def make_plan(dcs: list[str], *, microbatches: int = 4, **changes: Any) -> Plan:
    """Stages of 1 ms each way, transfers that take a pair 1 ms, nodes of four GPUs."""
    times = {"forward_s": 1e-3, "backward_s": 1e-3, "weight_grad_s": 0.5e-3, "recompute_s": 0}
    job = {
        "model": {"layers": len(dcs) * changes.get("interleave", 1), "hidden": 64, "heads": 2, "vocab": 100},
        "sequence": 16,
        "microbatches": microbatches,
        "recompute": False,
        "profile": {"stage": times, "boundary_bytes": BYTES, "gradient_bytes": 0, "optimizer_s": 0},
    }
    content = {
        "cluster": {
            "datacenters": [{"name": dc, "nodes": 20, "gpus_per_node": 4, "gpu": "h100"} for dc in sorted({*dcs})],
            "wan": {"default": {"rtt": 1e-3, "pair_cap": CAP, "tcp_window": 2e5}},
        },
        "job": job,
        "stages": [{"dc": dc, "layers": changes.get("interleave", 1)} for dc in dcs],
        "schedule": "1f1b",
        **changes,
    }
    return Plan.parse(content, source=Path("plan.yaml"))


def busiest_pair_bytes(plan: Plan) -> float:
    """Most that any node sends to any other in a step, by where the trainer puts the slots."""
    seating, sent = Seating(plan), Counter[tuple[str, int, str, int]]()
    for hop in Problem(plan).hops:
        if plan.crosses_wan(hop.source, hop.target):
            for pipeline in range(plan.num_pipelines):
                here, there = (seating.at(pipeline, stage)[0] for stage in (hop.source, hop.target))
                sent[here.dc, here.node, there.dc, there.node] += plan.num_microbatches
    return max(sent.values(), default=0) * BYTES


@given(
    dcs=st.lists(st.sampled_from(["east", "south"]), min_size=2, max_size=4),
    pipelines=st.integers(1, 4),
    cells=st.integers(1, 3),
    schedule=st.sampled_from(["gpipe", "1f1b", "varuna", "zero-bubble", "atlas", "interleaved"]),
    sharing=st.sampled_from(["spatial", "temporal"]),
)
@settings(max_examples=60, deadline=None)
def test_no_step_is_shorter_than_what_any_pair_of_nodes_must_carry(
    dcs: list[str], pipelines: int, cells: int, schedule: str, sharing: str
) -> None:
    plan = make_plan(
        dcs,
        pipelines_per_cell=pipelines,
        cells=cells,
        schedule=schedule,
        wan={"sharing": sharing},
        **({"interleave": 2} if schedule == "interleaved" else {}),
    )
    result = simulate(plan)
    assert busiest_pair_bytes(plan) / result.step_time_s <= CAP * (1 + 1e-9)
    assert result.step_time_s >= result.bound.total_s * (1 - 1e-9)


@pytest.mark.parametrize("sharing", ["spatial", "temporal"])
def test_four_pipelines_on_one_pair_are_as_fast_as_over_a_link_of_its_capacity(sharing: str) -> None:
    """In two cells or in one, in turn or at a time: pooling what is one pair's anyway brings no more of it."""
    plan = make_plan(["east", "south"], pipelines_per_cell=2, cells=2, wan={"sharing": sharing})
    link = plan.cluster.wan.default.model_copy(update={"capacity": CAP})
    wan = plan.cluster.wan.model_copy(update={"default": link})
    thin = plan.change(cluster=plan.cluster.model_copy(update={"wan": wan}))
    result = simulate(plan)
    assert result.step_time_s == pytest.approx(simulate(thin).step_time_s)
    assert result.step_time_s > 4 * 4 * BYTES / CAP
    apart = plan.cluster.model_copy(
        update={"datacenters": [dc.model_copy(update={"gpus_per_node": 1}) for dc in plan.cluster.datacenters]}
    )
    assert simulate(plan.change(cluster=apart)).step_time_s < 0.7 * result.step_time_s


def test_a_pipeline_that_crosses_twice_over_the_same_nodes_shares_their_pair() -> None:
    there_and_back = make_plan(["east", "south", "east", "south"], microbatches=16)
    result = simulate(there_and_back)
    assert busiest_pair_bytes(there_and_back) == 3 * 16 * BYTES  # activations twice, and gradients once
    assert result.step_time_s > 3 * 16 * BYTES / CAP
