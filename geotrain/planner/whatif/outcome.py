"""What the planner says to one question of a what-if, as plain figures that travel between processes and files."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from geotrain.errors import InputError
from geotrain.planner.answer import Answer
from geotrain.planner.search import find_plan
from geotrain.planner.use import uses
from geotrain.planner.whatif.grid import Point

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
    return _found(answer)


def _found(answer: Answer) -> Found:
    result = answer.best.result
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
        evaluations=answer.evaluations,
        gap=float(answer.gap),
    )
