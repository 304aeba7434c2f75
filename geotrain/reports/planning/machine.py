"""An Answer as plain data: the object that `geotrain plan --json` prints. Its names are a contract."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from geotrain.plan import MadeBy
from geotrain.planner.answer import Answer, Scored
from geotrain.planner.explain import Explanation, Worth, next_datacenter, worth
from geotrain.planner.survive import Fallback
from geotrain.planner.use import kind_of, num_cells, unused_datacenters, uses
from geotrain.runnable import why_not_runnable


def answer_json(
    answer: Answer,
    *,
    origin: MadeBy | None = None,
    worths: tuple[Worth, ...] = (),
    explanation: Explanation | None = None,
    fallbacks: Sequence[Fallback] | None = None,
    runnable: Scored | None = None,
) -> dict[str, Any]:
    """What was found; parts that were not asked for are null."""
    worths = worths or worth(answer)
    reasons = {id(rival.scored): rival.reason for rival in explanation.rivals} if explanation else {}
    return {
        "plan": answer.best.result.plan.change(made_by=origin).dump(),
        **_scored(answer, answer.best),
        "goal": answer.ask.goal,
        "evaluations": answer.evaluations,
        "considered": answer.considered,
        "search_s": float(answer.search_s),
        "gap": float(answer.gap),
        "ending": answer.ending,
        "published_algorithm": None if answer.published is None else _scored(answer, answer.published),
        "best_runnable": None if runnable is None else _scored(answer, runnable),
        "others": [{**_scored(answer, other), "why_it_lost": reasons.get(id(other))} for other in answer.others],
        "frontier": [_scored(answer, one) for one in answer.frontier],
        "next_datacenter": next_datacenter(worths),
        "worth": [asdict(one) for one in worths],
        "explanation": None if explanation is None else explanation_json(explanation),
        "survive": None if fallbacks is None else [fallback_json(fallback) for fallback in fallbacks],
    }


def _scored(answer: Answer, scored: Scored) -> dict[str, Any]:
    result, plan = scored.result, scored.result.plan
    reasons = why_not_runnable(plan)
    figures: dict[str, Any] = {
        "kind": kind_of(plan),
        "step_time_s": float(result.step_time_s),
        "tokens_per_s": float(result.tokens_per_s),
        "cost_per_billion_tokens": float(result.cost_per_billion_tokens),
        "step_over_bound": float(result.step_over_bound),
        "gpu_utilization": float(result.gpu_utilization),
        "gpus": plan.num_gpus,
        "tensor_parallel": plan.tensor_parallel,
        "pipelines_per_cell": plan.pipelines_per_cell,
        "cells": num_cells(plan),
        "microbatch": plan.job.microbatch,
        "microbatches": plan.num_microbatches,
        "datacenters": [
            {"name": use.dc, "gpus": use.gpus, "of": use.has_gpus, "stages": list(use.stages), "layers": use.layers}
            for use in uses(plan)
        ],
        "left_out": unused_datacenters(plan),
        "runnable": not reasons,
        "not_runnable_because": reasons,
    }
    if answer.ask.tokens:
        figures["training_time_s"] = scored.s_per_token * answer.ask.tokens
        figures["training_cost"] = scored.cost_per_token * answer.ask.tokens
    return figures


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """What binds, what more of each thing would bring, and why the others lost."""
    return {
        "binds": list(explanation.binds),
        "changes": [asdict(change) for change in explanation.changes],
        "rivals": [{"name": rival.name, "reason": rival.reason} for rival in explanation.rivals],
    }


def fallback_json(fallback: Fallback) -> dict[str, Any]:
    """The plan for the loss of a data center, or why there is none."""
    found = fallback.answer
    return {
        "lost": fallback.lost,
        "fits": found is not None,
        "reason": fallback.reason or None,
        "tokens_per_s_lost": float(fallback.tokens_per_s_lost),
        "gpus_left": fallback.gpus_left,
        "gpus_idle": fallback.gpus_idle,
        "plan": None if found is None else found.best.result.plan.dump(),
        "step_time_s": None if found is None else float(found.best.result.step_time_s),
        "tokens_per_s": 0.0 if found is None else float(found.best.result.tokens_per_s),
    }
