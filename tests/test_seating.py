"""Every process of a run has one place, and every place of the plan one process."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.seating import Seating
from tests.training.plans import plan


@given(
    stages=st.lists(st.sampled_from(["east", "south", "west"]), min_size=1, max_size=5),
    pipelines=st.integers(1, 4),
    cells=st.integers(1, 2),
    width=st.sampled_from([1, 2]),
)
def test_each_slot_has_its_seats_and_no_gpu_two_of_them(stages, pipelines, cells, width):
    made: Plan = plan(stages, pipelines_per_cell=pipelines, cells=cells, tensor_parallel=width, gpus_per_node=4)
    seating = Seating(made)

    assert len(seating.seats) == made.num_gpus
    assert len({(seat.dc, seat.node, seat.local_rank) for seat in seating.seats}) == made.num_gpus
    assert {(seat.pipeline, seat.stage, seat.part) for seat in seating.seats} == {
        (p, s, part) for p in range(made.num_pipelines) for s in range(len(stages)) for part in range(width)
    }
    for dc in seating.dcs:
        world = seating.world(dc)
        assert [seat.rank for seat in world] == list(range(len(world)))
        assert all(made.stages[seat.stage].dc == dc for seat in world)
        assert [seat for node in seating.nodes(dc) for seat in node] == world
        assert all(seat.local_rank < 4 for seat in world)
    for seat in seating.seats:
        # The parts of a slot share a node, as tensor parallelism wants.
        assert len({other.node for other in seating.at(*seat.slot)}) == 1


def test_replicas_are_worlds_with_pipelines_of_their_own():
    made = plan(["east", "east"], replicas=[{"dc": "south", "cells": 2}], pipelines_per_cell=2)
    seating = Seating(made)
    assert seating.dcs == ["east", "south"]
    assert seating.pipelines_in("east") == [0, 1]
    assert seating.pipelines_in("south") == [2, 3, 4, 5]
    assert {seat.dc for seat in seating.copies(1)[0]} == {"east", "south"}


def test_a_world_of_another_size_is_refused_in_one_sentence():
    seating = Seating(plan(["east", "south"], pipelines_per_cell=2))
    with pytest.raises(InputError, match="'south' was started with 3 processes, and the plan needs 2 there"):
        seating.seat("south", 0, 3)
    with pytest.raises(InputError, match="'west' has no part in this plan, only east, south have"):
        seating.seat("west", 0, 1)


def test_a_data_center_whose_name_is_too_long_for_its_processes_is_refused():
    content = plan(["east"]).dump()
    content["cluster"]["datacenters"][0]["name"] = content["stages"][0]["dc"] = "ö" * 17
    made = Plan.parse(content, source=Path("plan.yaml"))
    with pytest.raises(InputError, match="to train there, its name must have at most 32 bytes"):
        Seating(made)
