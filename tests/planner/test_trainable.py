"""The best plan that can be trained, beside the best of all."""

from dataclasses import replace
from typing import Any

import pytest

from geotrain.errors import DoesNotFitError
from geotrain.planner import Ask, find_plan
from geotrain.planner.answer import Answer
from geotrain.planner.trainable import best_runnable
from geotrain.reports.planning.answer import training_sentences
from geotrain.reports.planning.machine import answer_json
from geotrain.runnable import why_not_runnable
from tests.planner.answers import answer, make_plan

LLAMA = {"model": {"name": "llama-2-7b", "layers": 8}, "sequence": 1024, "microbatches": 8}


def _replicated(**job: Any) -> Answer:
    names = ["east", "south"]
    best = make_plan(names, used=["east"], replicas=["south"], job=LLAMA | job)
    return replace(answer(best), ask=Ask(schedule="1f1b", evaluations=30))


def _never(*_: object) -> Answer:
    raise AssertionError("no search is needed")


def test_where_replicas_win_a_short_search_finds_the_best_plan_without_them():
    found = _replicated()
    plan, asked = found.best.result.plan, []

    def find(cluster, job, ask):
        asked.append(ask)
        return find_plan(cluster, job, ask)

    runnable = best_runnable(plan.cluster, plan.job, found, find)
    assert [(ask.across, ask.evaluations) for ask in asked] == [("pipeline", 10)]
    assert runnable is not None and why_not_runnable(runnable.result.plan) == []

    told = answer_json(found, runnable=runnable)
    assert not told["runnable"] and "replicas" in told["not_runnable_because"][0]
    assert told["best_runnable"]["runnable"] and told["best_runnable"]["not_runnable_because"] == []
    why, instead = training_sentences(found.best, runnable)
    assert why.startswith("Not runnable by `geotrain train`: the plan has replicas")
    lost = found.best.s_per_token / runnable.s_per_token - 1
    assert f"{lost:+.1%} tokens/s; --across pipeline finds it." in instead


def test_what_was_simulated_counts_where_the_search_without_replicas_finds_nothing():
    names = ["east", "south"]
    other = make_plan(names, used=["east", "south"], job=LLAMA)
    best = make_plan(names, used=["east"], replicas=["south"], job=LLAMA)

    def nothing(*_: object) -> Answer:
        raise DoesNotFitError("too large")

    found = answer(best, other)
    runnable = best_runnable(best.cluster, best.job, found, nothing)
    assert runnable is not None and runnable.result.plan == other


@pytest.mark.parametrize("case", ["runs", "job"])
def test_nothing_is_searched_where_the_best_plan_runs_or_none_can(case: str):
    if case == "runs":
        found = answer(make_plan(["east"], used=["east", "east"], job=LLAMA))
        assert training_sentences(found.best, None) == []
    else:
        found = _replicated(recompute="layerwise")
    plan = found.best.result.plan
    assert best_runnable(plan.cluster, plan.job, found, _never) is None
