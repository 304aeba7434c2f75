"""What the planner says to one question of a what-if, as plain figures that travel between processes and files."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.planner.answer import Scored
from geotrain.planner.ask import Goal
from geotrain.planner.layout import with_microbatch
from geotrain.planner.search import find_plan
from geotrain.planner.use import uses
from geotrain.planner.whatif.grid import Point
from geotrain.simulation import simulate

Across = Literal["none", "pipeline", "data"]
"""How a plan spans data centers: not at all, each pipeline through several, or whole pipelines in each."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best plan, in figures."""

    tokens_per_s: float
    step_time_s: float
    cost_per_billion_tokens: float
    gpus: int
    datacenters: dict[str, int]
    """GPUs in use by data center, in the order of the pipeline."""
    tensor_parallel: int
    stages: int
    pipelines: int
    schedule: str
    across: Across
    binding: str
    """The floor that holds the step up."""
    evaluations: int
    gap: float
    """No plan with stages placed in a way that was tried can be better by more than this share."""
    choices: str = ""
    """What the plan chose, as JSON, to be tried at other points."""

    def score(self, goal: Goal) -> float:
        """Smaller is better."""
        return 1 / self.tokens_per_s if goal == "time" else self.cost_per_billion_tokens


@dataclass(frozen=True, kw_only=True)
class NothingFits:
    """There is no plan."""

    reason: str


Outcome = Found | NothingFits


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Plain data that `outcome_of` reads back without loss."""
    return asdict(outcome)


def outcome_of(content: dict[str, Any]) -> Outcome:
    """What `outcome_json` made; TypeError if it is something else."""
    return NothingFits(**content) if "reason" in content else Found(**content)


def plan_for(point: Point) -> Outcome:
    """Ask the planner. Same point, same outcome, in whichever process."""
    try:
        answer = find_plan(point.cluster, point.job, point.ask)
    except InputError as error:
        return NothingFits(reason=str(error))
    if answer.ending == "interrupted":
        raise KeyboardInterrupt
    return _found(answer.best, answer.evaluations, answer.gap)


def carried(question: tuple[Point, Found, tuple[str, ...]]) -> Found:
    """The outcome of the point, or a better one with the choices of plans that were found for other points."""
    point, found, others = question
    for choices in others:
        content = json.loads(choices)
        job = with_microbatch(point.job, content.pop("microbatch"))
        try:
            scored = Scored(result=simulate(Plan.model_validate({**content, "cluster": point.cluster, "job": job})))
        except (InputError, ValidationError):
            continue
        better = _found(scored, found.evaluations + 1, 0.0)
        now, before = better.score(point.ask.goal), found.score(point.ask.goal)
        if scored.meets(point.ask) and now < before:
            found = replace(better, gap=max(0.0, 1 - before * (1 - found.gap) / now))
    return found


def _found(scored: Scored, evaluations: int, gap: float) -> Found:
    result = scored.result
    plan = result.plan
    used = {use.dc: use.gpus for use in uses(plan)}
    return Found(
        tokens_per_s=float(result.tokens_per_s),
        step_time_s=float(result.step_time_s),
        cost_per_billion_tokens=float(result.cost_per_billion_tokens),
        gpus=sum(used.values()),
        datacenters=used,
        tensor_parallel=plan.tensor_parallel,
        stages=len(plan.stages),
        pipelines=plan.num_pipelines,
        schedule=plan.schedule,
        across="none" if len(used) == 1 else "data" if plan.replicas else "pipeline",
        binding=result.bound.binding,
        evaluations=evaluations,
        gap=float(gap),
        choices=_choices(plan),
    )


def _choices(plan: Plan) -> str:
    return json.dumps(
        {
            "microbatch": plan.job.microbatch,
            "tensor_parallel": plan.tensor_parallel,
            "stages": [{"dc": stage.dc, "layers": stage.layers} for stage in plan.stages],
            "pipelines_per_cell": plan.pipelines_per_cell,
            "cells": plan.cells,
            "replicas": [{"dc": replica.dc, "cells": replica.cells} for replica in plan.replicas],
            "schedule": plan.schedule,
        }
    )
