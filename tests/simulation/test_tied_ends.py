"""Where the embedding is the head too, the ends of a pipeline swap its gradients before the optimizer."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.plan import Plan
from geotrain.planner.ask import Ask
from geotrain.planner.space import Space
from geotrain.simulation import simulate
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.problem import Problem
from tests.planner.bandwidths import random_case

RTT_S, CAP = 0.04, 125e6
EMBEDDING_BYTES = 50_000 * 512 * 2


def make_plan(dcs: list[str], *, tied: bool = True, profile: dict[str, Any] | None = None, **changes: Any) -> Plan:
    chunks = changes.get("interleave", 1)
    model = {"layers": len(dcs) * chunks, "hidden": 512, "heads": 8, "vocab": 50_000, "tied_embeddings": tied}
    datacenters = [
        {"name": dc, "nodes": 8, "gpu": "h100", "fabric": {"rate": 10e9, "latency": 0}} for dc in sorted({*dcs})
    ]
    content = {
        "cluster": {
            "datacenters": datacenters,
            "wan": {"default": {"rtt": RTT_S, "pair_cap": CAP, "tcp_window": 1e6, "price_per_gb": 0.02}},
        },
        "job": {"model": model, "sequence": 512, "microbatches": 4, "profile": profile or {}},
        "stages": [{"dc": dc, "layers": chunks} for dc in dcs],
        "schedule": "1f1b",
        **changes,
    }
    return Plan.parse(content, source=Path("plan.yaml"))


def test_the_swap_follows_the_last_backward_of_both_ends_and_is_paid_for() -> None:
    tied, apart = (simulate(make_plan(["east", "south"], tied=tied)) for tied in (True, False))
    swap_s = EMBEDDING_BYTES / CAP + RTT_S
    assert tied.step_time_s == pytest.approx(apart.step_time_s + swap_s)
    assert tied.bound.total_s == pytest.approx(apart.bound.total_s + swap_s)
    for with_swap, without in zip(tied.links, apart.links, strict=True):
        assert with_swap.size_bytes == without.size_bytes + EMBEDDING_BYTES
        busy_s = [link.busy_fraction * one.step_time_s for link, one in ((with_swap, tied), (without, apart))]
        assert busy_s[0] == pytest.approx(busy_s[1] + EMBEDDING_BYTES / CAP)
    assert tied.egress_cost == pytest.approx(apart.egress_cost + 2 * EMBEDDING_BYTES / 1e9 * 0.02)
    timeline = tied.timeline
    assert timeline.update_start_s.tolist() == pytest.approx([timeline.reduce_start_s.max() + swap_s] * 2)


def test_ends_without_a_common_boundary_swap_over_their_own_link() -> None:
    result = simulate(make_plan(["east", "south", "west"]))
    sizes = {(link.source, link.target): link.size_bytes for link in result.links}
    assert sizes["east", "west"] == sizes["west", "east"] == EMBEDDING_BYTES
    used = {(link.source, link.target): link for link in result.links}["east", "west"]
    assert used.rate == CAP
    assert used.busy_fraction == pytest.approx(EMBEDDING_BYTES / CAP / result.step_time_s)


def test_ends_in_one_data_center_swap_over_its_fabric_and_tell_their_copies() -> None:
    steps = [simulate(make_plan(["east"] * 2, tied=tied, cells=2)).step_time_s for tied in (True, False)]
    assert steps[0] - steps[1] == pytest.approx(2 * EMBEDDING_BYTES / 10e9)


def test_one_stage_has_nothing_to_swap_and_a_profile_without_gradients_neither() -> None:
    assert Problem(make_plan(["east"])).swap is None
    assert Problem(make_plan(["east", "south"], profile={"gradient_bytes": 0})).swap is None


@given(
    dcs=st.lists(st.sampled_from(["east", "south", "west"]), min_size=2, max_size=4),
    schedule=st.sampled_from(["gpipe", "1f1b", "varuna", "zero-bubble", "interleaved"]),
    pipelines=st.integers(1, 2),
    sharing=st.sampled_from(["spatial", "temporal"]),
)
@settings(max_examples=40, deadline=None)
def test_tied_embeddings_never_make_a_step_shorter(dcs: list[str], schedule: str, pipelines: int, sharing: str) -> None:
    choices: dict[str, Any] = {"schedule": schedule, "pipelines_per_cell": pipelines, "wan": {"sharing": sharing}}
    if schedule == "interleaved":
        choices["interleave"] = 2
    tied, apart = (simulate(make_plan(dcs, tied=tied, **choices)) for tied in (True, False))
    assert tied.step_time_s >= apart.step_time_s
    assert tied.timeline.step_time_s == tied.step_time_s
    assert tied.bound.total_s >= apart.bound.total_s
    assert tied.step_time_s >= tied.bound.total_s * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_planners_quick_floor_is_below_the_bound(seed: int) -> None:
    cluster, job = random_case(seed)
    tied = job.model_copy(update={"model": job.model.model_copy(update={"tied_embeddings": True})})
    space = Space(cluster, tied, Ask(across="pipeline"))
    layouts = [layout for group in list(space.groups())[:12] for layout in list(space.layouts(group))[:4]]
    assert len(layouts) > 5
    for layout in layouts:
        floor_s = space.slots(layout.tensor_parallel, layout.microbatch).floor_s(layout)
        assert floor_s <= lower_bound(Problem(space.plan(layout, "auto"))).total_s * (1 + 1e-9)
