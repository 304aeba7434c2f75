from dataclasses import replace

import pytest

from geotrain.errors import DoesNotFitError
from geotrain.planner import Ask, find_plan
from geotrain.planner.survive import alone_in_each, cluster_without, fallbacks, without_each
from geotrain.planner.use import used_datacenters
from tests.planner.answers import datacenter, make_plan, three_datacenters

QUICK = Ask(schedule="1f1b", evaluations=5)


def test_every_used_data_center_has_a_plan_without_it_and_its_cost():
    found = replace(three_datacenters(), ask=QUICK)
    plan = found.best.result.plan
    after = fallbacks(plan.cluster, plan.job, found, find_plan)

    assert [one.lost for one in after] == ["east", "south"]
    for one in after:
        assert one.answer is not None
        result = one.answer.best.result
        assert one.lost not in used_datacenters(result.plan)
        assert one.tokens_per_s_lost == pytest.approx(1 - result.tokens_per_s / found.best.result.tokens_per_s)
        assert (one.gpus_left, one.gpus_idle) == (16, 16 - result.plan.num_gpus)


def test_a_loss_after_which_nothing_fits_says_why():
    found = three_datacenters()
    plan = found.best.result.plan

    def nothing(*_: object):
        raise DoesNotFitError("closest: far too large")

    (east, _) = fallbacks(plan.cluster, plan.job, found, nothing)
    assert (east.answer, east.reason, east.tokens_per_s_lost) == (None, "closest: far too large", 1.0)
    assert (east.gpus_left, east.gpus_idle) == (16, 16)


def test_the_only_data_center_has_nothing_to_fall_back_to():
    plan = make_plan(["east"], used=["east", "east"])
    found = find_plan(plan.cluster, plan.job, QUICK)
    (east,) = fallbacks(plan.cluster, plan.job, found, find_plan)

    assert (east.answer, east.reason) == (None, "east holds all GPUs there are")
    assert without_each(plan.cluster, plan.job, found, find_plan) == {}


def test_the_deadline_no_longer_counts():
    found = three_datacenters()
    plan = found.best.result.plan
    asks = []

    def remember(_cluster: object, _job: object, ask: Ask):
        asks.append(ask)
        raise DoesNotFitError("")

    fallbacks(plan.cluster, plan.job, replace(found, ask=Ask(tokens=1e9, deadline_s=5.0, goal="cost")), remember)
    assert asks == [Ask(tokens=1e9, goal="cost")] * 2


def test_links_to_what_is_lost_go_with_it():
    plan = make_plan(["east", "south", "west"], used=["east", "south"])
    links = [{"between": ["east", "south"], "rtt": 0.02}, {"from": "west", "to": "south", "rtt": 0.03}]
    cluster = type(plan.cluster).model_validate(
        {"datacenters": [datacenter(name) for name in ("east", "south", "west")], "wan": {"links": links}}
    )
    left = cluster_without(cluster, "east")

    assert [dc.name for dc in left.datacenters] == ["south", "west"]
    assert [link.directions for link in left.wan.links] == [[("west", "south")]]


def test_what_each_data_center_brings_is_looked_for_without_it():
    found = replace(three_datacenters(), ask=QUICK)
    plan = found.best.result.plan
    without = without_each(plan.cluster, plan.job, found, find_plan)

    assert list(without) == ["east", "south"]
    for name, scored in without.items():
        assert scored is not None and name not in used_datacenters(scored.result.plan)
        alone = find_plan(cluster_without(plan.cluster, name), plan.job, QUICK)
        assert scored.s_per_token == alone.best.s_per_token


def test_every_data_center_alone_has_its_best_plan():
    found = replace(three_datacenters(), ask=QUICK)
    plan = found.best.result.plan
    alone = alone_in_each(plan.cluster, plan.job, found, find_plan)

    assert [used_datacenters(one.best.result.plan) for one in alone] == [["east"], ["south"], ["west"]]
