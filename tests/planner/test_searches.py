"""Searches that share what they find: alike clusters once, layouts in full once, the best of all as the answer."""

from dataclasses import replace

import pytest

from geotrain.cluster import Cluster
from geotrain.planner import Answer, Ask, find_plan
from geotrain.planner.searches import Searches, joined
from geotrain.planner.survive import cluster_without
from geotrain.planner.use import kind_of, used_datacenters
from geotrain.simulation.auto import Found
from geotrain.simulation.problem import Problem
from geotrain.simulation.simulate import fastest
from tests.planner.answers import answer, datacenter, make_plan

QUICK = Ask(schedule="1f1b", evaluations=5)
NAMES = ["east", "south", "west"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    """Clusters for which a search was made."""
    found: list[Cluster] = []

    def find(cluster: Cluster, *question: object, **options: object) -> Answer:
        found.append(cluster)
        return find_plan(cluster, *question, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("geotrain.planner.searches.find_plan", find)
    return found


def figures(found: Answer) -> list[object]:
    every = [found.best, *found.others, *found.frontier]
    return [(kind_of(one.result.plan), one.s_per_token, one.cost_per_token) for one in every]


def test_data_centers_that_differ_in_names_only_share_one_search(made: list[Cluster]):
    plan = make_plan(NAMES, used=["east", "south"])
    searches = Searches()
    for name in NAMES:
        left = cluster_without(plan.cluster, name)
        found = searches.find(left, plan.job, QUICK)
        again = find_plan(left, plan.job, QUICK)
        assert found.best.result.plan == again.best.result.plan
        assert figures(found) == figures(again)
        assert [(one.source, one.target) for one in found.best.result.links] == [
            (one.source, one.target) for one in again.best.result.links
        ]
        assert found.best.result.bound == again.best.result.bound
    assert len(made) == 1


@pytest.mark.parametrize(
    ("change", "searches_made"),
    [
        pytest.param({}, 1, id="alike"),
        pytest.param({"price_per_gpu_hour": 9.0}, 2, id="price"),
        pytest.param({"nodes": 7}, 2, id="nodes"),
        pytest.param({"gpu": {"base": "h100", "memory": "70 GiB"}}, 2, id="same-name-other-figures"),
        pytest.param({"link": "90 ms"}, 2, id="link"),
    ],
)
def test_only_what_is_alike_is_shared(made: list[Cluster], change: dict[str, object], searches_made: int):
    """East is lost, or south: west is left with another one."""
    plan = make_plan(NAMES, used=["east", "south"])
    links = [{"from": "south", "to": "west", "rtt": change.pop("link")}] if "link" in change else []
    dcs = [datacenter("east"), datacenter("south", **change), datacenter("west", 5)]  # type: ignore[arg-type]
    wan = {"default": plan.cluster.wan.default, "links": links}
    cluster = Cluster.model_validate({"datacenters": dcs, "wan": wan})
    searches = Searches()
    for name in ("east", "south"):
        left = cluster_without(cluster, name)
        assert figures(searches.find(left, plan.job, QUICK)) == figures(find_plan(left, plan.job, QUICK))
    assert len(made) == searches_made


def test_a_layout_is_simulated_in_full_once_and_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch):
    plan = make_plan(NAMES, used=["east", "south"])
    job = plan.job.model_copy(update={"microbatches": 2})
    in_full: list[Problem] = []

    def count(problem: Problem) -> Found | None:
        in_full.append(problem)
        return fastest(problem)

    monkeypatch.setattr("geotrain.planner.search.fastest", count)
    searches, ask = Searches(), Ask(across="data")
    first = searches.find(plan.cluster, job, ask)
    assert any(problem.plan.schedule == "auto" for problem in in_full)

    in_full.clear()
    second = searches.find(plan.cluster, job, replace(ask, evaluations=299))
    assert not any(problem.plan.schedule == "auto" for problem in in_full)
    assert second.best.result.plan == first.best.result.plan
    assert figures(second) == figures(first)
    assert (second.gap, second.evaluations) == (first.gap, first.evaluations)


def test_the_best_of_all_searches_is_the_answer_and_its_gap_is_true():
    poor, good = make_plan(NAMES, used=["east", "east"]), make_plan(NAMES, used=["east", "east"], cells=2)
    first = answer(poor)
    floor = first.best.s_per_token * (1 - first.gap)
    found = joined(first, [answer(good.change(cluster=cluster_without(good.cluster, "west")))])

    assert found.best.result.plan == good
    assert found.gap == max(0.004, 1 - floor / found.best.s_per_token)
    assert found.frontier[0] is found.best


def test_what_does_not_fit_on_the_cluster_or_differs_there_is_left_aside():
    first = answer(make_plan(NAMES, used=["east", "east"]))
    large = first.best.result.plan.change(cluster={"datacenters": [datacenter("east", 64)]}, cells=16)
    faster = make_plan(["east"], used=["east", "east"], cells=2)
    gpu = faster.cluster.datacenters[0].gpu
    dc = faster.cluster.datacenters[0].model_copy(update={"gpu": gpu.model_copy(update={"bf16": 2 * (gpu.bf16 or 1)})})
    faster = faster.change(cluster=faster.cluster.model_copy(update={"datacenters": [dc]}))

    found = joined(first, [answer(large), answer(faster)])
    assert found.best is first.best and found.others == ()


def test_a_plan_that_misses_the_deadline_is_no_answer_but_a_runner_up():
    slow, fast = make_plan(NAMES, used=["east", "east"]), make_plan(NAMES, used=["south", "south"], cells=2)
    first = answer(fast)
    limited = replace(first, ask=Ask(goal="cost", tokens=1e9, deadline_s=first.best.s_per_token * 1e9))
    found = joined(limited, [answer(slow)])

    assert found.best is first.best
    assert [used_datacenters(one.result.plan) for one in found.others] == [["east"]]
