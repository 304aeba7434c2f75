from dataclasses import replace

from geotrain.planner import Ask, find_plan
from geotrain.planner.growth import one_more_node
from tests.planner.answers import make_plan


def test_one_more_node_is_planned_for_in_every_data_center_and_never_takes_away():
    plan = make_plan(["east", "south"], used=["east", "east"])
    found = find_plan(plan.cluster, plan.job, Ask(schedule="1f1b", evaluations=5))
    changes = one_more_node(plan.cluster, plan.job, replace(found, considered=100), find_plan)

    assert [change.what for change in changes] == [
        "one more node in east, planned anew",
        "one more node in south, planned anew",
    ]
    assert all(change.gain >= 0 for change in changes)


def test_a_long_search_is_not_repeated():
    plan = make_plan(["east"], used=["east", "east"])
    found = find_plan(plan.cluster, plan.job, Ask(schedule="1f1b", evaluations=1))

    assert one_more_node(plan.cluster, plan.job, replace(found, considered=10**6), find_plan) == []
