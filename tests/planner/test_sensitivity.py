from dataclasses import replace

import pytest

from geotrain.cluster import Cluster
from geotrain.planner import Answer, Ask, find_plan
from geotrain.planner.nudges import better_parts, one_more_node
from geotrain.planner.sensitivity import Change, sensitivity
from geotrain.simulation import simulate
from geotrain.workload import Job
from tests.planner.answers import answer, datacenter, make_plan
from tests.simulation.plans import make_plan as timed_plan

QUICK = Ask(schedule="1f1b", evaluations=5)


def changes(found: Answer) -> dict[str, Change]:
    plan = found.best.result.plan
    return {change.what: change for change in sensitivity(plan.cluster, plan.job, found, find_plan)}


def two_datacenters(**job: object) -> tuple[Cluster, Job]:
    plan = make_plan(["east", "south"], used=["east", "east"])
    return plan.cluster, plan.job.model_copy(update=job)


def test_every_change_is_a_plan_of_its_own_and_the_best_comes_first():
    cluster, job = two_datacenters()
    found = find_plan(cluster, job, QUICK)
    asked: list[Cluster] = []

    def find(cluster: Cluster, job: Job, ask: Ask) -> Answer:
        asked.append(cluster)
        return find_plan(cluster, job, ask)

    listed = sensitivity(cluster, job, found, find)
    assert len(asked) == len(listed) and cluster not in asked
    assert {"one more node in east", "one more node in south"} <= {change.what for change in listed}
    assert {change.resource for change in listed} >= {"GPUs", "compute", "memory", "fabric"}
    assert [change.gain for change in listed] == sorted((change.gain for change in listed), reverse=True)
    assert all(change.gain >= 0 for change in listed)


def test_a_change_may_lead_to_another_layout():
    """A fourth node makes room for a second pipeline; the plan as it is would gain nothing."""
    plan = make_plan(["east"], used=["east"], cluster={"datacenters": [datacenter("east", 3)]}, pipelines_per_cell=1)
    found = find_plan(plan.cluster, plan.job, QUICK)

    assert found.best.result.plan.num_pipelines == 1
    assert changes(found)["one more node in east"].gain > 0.2


def test_a_search_that_misses_the_plan_does_not_take_it_away():
    cluster, job = two_datacenters()
    found = find_plan(cluster, job, QUICK)
    poor = answer(make_plan(["east"], used=["east", "east"]))

    assert all(change.gain >= 0 for change in sensitivity(cluster, job, found, lambda *_: poor))


def test_faster_gpus_shorten_a_step_that_is_all_compute_by_as_much():
    plan = timed_plan(forward=[10.0], backward=[20.0], microbatches=4)
    found = find_plan(plan.cluster, plan.job, QUICK)

    assert changes(found)["GPUs 10% faster"].gain == pytest.approx(0.1)


def test_only_the_gpus_and_links_in_use_are_named_each_kind_by_itself():
    plan = make_plan(["east", "south", "west"], used=["east", "south"])
    kinds = [datacenter("east"), datacenter("south", gpu="a100-80gb"), datacenter("west", gpu="v100")]
    mixed = plan.change(cluster={"datacenters": kinds, "wan": plan.cluster.wan})

    assert {nudge.what for nudge in better_parts(mixed.cluster, mixed.job, simulate(mixed))} == {
        "h100 10% faster",
        "h100 with 10% more memory",
        "a100-80gb 10% faster",
        "a100-80gb with 10% more memory",
        "1 Gbit/s more per pair between east and south",
        "fabric twice as fast",
    }


def test_more_of_a_link_is_more_of_what_it_says_both_ways_and_of_nothing_else():
    plan = make_plan(["east", "south"], used=["east", "south"])
    wan = {"default": {"rtt": "30 ms", "pair_cap": "10 Gbit/s", "capacity": "100 Gbit/s"}}
    plan = plan.change(cluster={"datacenters": plan.cluster.datacenters, "wan": wan})
    nudges = {nudge.what: nudge.cluster for nudge in better_parts(plan.cluster, plan.job, simulate(plan))}

    pair, capacity = (
        nudges["1 Gbit/s more per pair between east and south"],
        nudges["10% more capacity between east and south"],
    )
    for ends in (("east", "south"), ("south", "east")):
        before = plan.cluster.link(*ends)
        assert pair.link(*ends) == before.model_copy(update={"pair_cap": 11e9 / 8})
        assert capacity.link(*ends).capacity == pytest.approx(110e9 / 8)
        assert capacity.link(*ends).pair_cap == before.pair_cap


@pytest.mark.parametrize(("considered", "made"), [(2_001, 2), (20_001, 0)])
def test_a_long_search_is_repeated_for_nodes_only_or_not_at_all(considered: int, made: int):
    cluster, job = two_datacenters()
    found = replace(find_plan(cluster, job, QUICK), considered=considered)

    assert list(changes(found)) == [nudge.what for nudge in one_more_node(cluster, job)][:made]
