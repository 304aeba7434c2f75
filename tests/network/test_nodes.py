from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.network import Row, most_on_a_pair, path_between, row_of
from geotrain.plan import Plan
from geotrain.seating import Seating


def make_plan(dcs: list[str], *, pipelines: int = 1, cells: int = 1, gpus: int = 4, width: int = 1) -> Plan:
    """A stage in each of these, with as many nodes as are needed and pairs of 1 GB/s."""
    stages = [{"dc": dc, "layers": 1} for dc in dcs]
    content = {
        "cluster": {
            "datacenters": [{"name": dc, "nodes": 99, "gpus_per_node": gpus, "gpu": "h100"} for dc in sorted({*dcs})],
            "wan": {"default": {"pair_cap": 1e9}},
        },
        "job": {"model": {"name": "gpt-a", "layers": len(dcs)}, "microbatches": 1},
        "stages": stages,
        "pipelines_per_cell": pipelines,
        "cells": cells,
        "tensor_parallel": width,
    }
    return Plan.parse(content, source=Path("plan.yaml"))


@given(
    dcs=st.lists(st.sampled_from(["east", "south", "west"]), min_size=1, max_size=5),
    pipelines=st.integers(1, 5),
    gpus=st.sampled_from([1, 2, 4, 8]),
    width=st.sampled_from([1, 2]),
)
@settings(max_examples=50, deadline=None)
def test_a_slot_is_on_the_node_that_the_trainer_gives_it(dcs: list[str], pipelines: int, gpus: int, width: int) -> None:
    plan = make_plan(dcs, pipelines=pipelines, gpus=max(gpus, width), width=width)
    for seat in Seating(plan).seats:
        assert row_of(plan, seat.stage).node(seat.pipeline) == seat.node


def test_pipelines_on_one_pair_of_nodes_share_its_cap() -> None:
    plan = make_plan(["east", "west"], pipelines=2, cells=2)
    own = path_between(plan, 0, 1, pooled=False, size_bytes=1e6)
    assert (own.sharing, own.rate) == (4, 1e9 / 4)
    assert path_between(plan, 0, 1, pooled=True, size_bytes=1e6).rate == 1e9 / 2  # the other cell has the other half


def test_of_pipelines_on_unequal_pairs_the_slowest_counts() -> None:
    """East has nodes of three slots and west of two, so that pairs carry two, one and one of four pipelines."""
    east, west = Row(0, 3), Row(0, 2)
    assert [(east.node(p), west.node(p)) for p in range(4)] == [(0, 0), (0, 0), (0, 1), (1, 1)]
    assert most_on_a_pair([(east, west)], 4) == 2
    assert most_on_a_pair([(east, west)], 2) == 2
    assert most_on_a_pair([(Row(1, 3), Row(1, 2))], 2) == 1


def test_one_slot_per_node_on_either_side_shares_nothing() -> None:
    assert most_on_a_pair([(Row(0, 8), Row(0, 1))], 8) == 1
