import pytest

from geotrain.planner.sensitivity import sensitivity
from geotrain.simulation import simulate
from tests.planner.answers import datacenter, make_plan, three_datacenters
from tests.simulation.plans import make_plan as timed_plan


def gains(result):
    return {change.what: change.gain for change in sensitivity(result)}


def test_every_resource_of_a_plan_is_looked_at_and_the_best_comes_first():
    changes = sensitivity(three_datacenters().best.result)

    assert {change.resource for change in changes} == {
        "compute", "memory", "bandwidth", "latency", "fabric", "batch", "GPUs",
    }  # fmt: skip
    assert [change.gain for change in changes] == sorted((change.gain for change in changes), reverse=True)
    assert all(change.gain >= 0 for change in changes)


def test_faster_gpus_shorten_a_step_that_is_all_compute_by_as_much():
    result = simulate(timed_plan(forward=[10.0], backward=[20.0], microbatches=4))

    assert gains(result)["GPUs 10% faster"] == pytest.approx(0.1)


def test_a_round_trip_that_is_shorter_by_10_ms_saves_that_on_the_way_there_and_back():
    result = simulate(timed_plan(forward=[1, 1], backward=[2, 2], occupancy=[1], latency=[20], microbatches=1))
    (change,) = [change for change in sensitivity(result) if change.resource == "latency"]

    assert change.what == "10 ms less round trip between dc0 and dc1"
    assert change.step_time_s == pytest.approx(result.step_time_s - 0.01)


def test_a_link_limited_by_bytes_gains_from_rate_and_hardly_from_latency():
    slow = timed_plan(forward=[1, 1], backward=[1, 1], occupancy=[20], latency=[1], microbatches=8)
    found = {change.resource: change.gain for change in sensitivity(simulate(slow))}

    assert found["bandwidth"] > 5 * found["latency"]


def test_only_the_gpus_in_use_are_named_each_kind_by_itself():
    plan = make_plan(["east", "south"], used=["east", "south"])
    mixed = plan.change(
        cluster={
            "datacenters": [datacenter("east"), datacenter("south", gpu="a100-80gb")],
            "wan": plan.cluster.wan,
        }
    )

    assert {"h100 10% faster", "a100-80gb 10% faster"} <= gains(simulate(mixed)).keys()


def test_one_more_cell_says_what_it_needs():
    free = gains(simulate(make_plan(["east"], used=["east", "east"])))
    full = gains(simulate(make_plan(["east"], used=["east", "east"], cells=2)))

    assert free["one more cell with its own batch (on GPUs that are there)"] > 0.5
    assert full["one more cell with its own batch (nodes: 4 more in east)"] > 0.2


def test_a_change_that_does_not_go_with_the_plan_is_left_out():
    copies = make_plan(["east", "south"], used=["east", "east"], replicas=["south"])

    assert not any("cell" in what for what in gains(simulate(copies)))
