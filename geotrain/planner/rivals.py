"""Why a plan lost: its tokens per second and its cost taken apart, against the plan that won.

Tokens per second are GPUs x share of the step they work x what one does while it works; each is compared.
"""

from dataclasses import dataclass

from geotrain.plan import Plan
from geotrain.planner.answer import Answer, Scored
from geotrain.planner.ask import Ask
from geotrain.planner.use import kind_of, uses
from geotrain.simulation import Result
from geotrain.units import plural

_MATTERS = 0.005
"""Differences below this share are not worth a word."""
_WAITS = {
    "wan": "waiting for the WAN",
    "pipeline": "waiting for neighbours (fill, drain, imbalance)",
    "fabric": "waiting for the fabric",
    "all_reduce": "the all-reduce",
}


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Another plan, and why it was not chosen."""

    name: str
    scored: Scored
    reason: str


def rivals(answer: Answer) -> list[Rival]:
    """The published algorithm's plan first, then the best of every other kind."""
    found = []
    if answer.published is not None and answer.published.result.plan != answer.best.result.plan:
        found.append(("published algorithm", answer.published))
    found += [(kind_of(scored.result.plan), scored) for scored in answer.others]
    return [
        Rival(name=name, scored=scored, reason=why_it_lost(answer.best, scored, answer.ask)) for name, scored in found
    ]


def why_it_lost(best: Scored, other: Scored, ask: Ask) -> str:
    """One or two sentences with figures."""
    slower, dearer = best.s_per_token / other.s_per_token - 1, _ratio(other.cost_per_token, best.cost_per_token) - 1
    verdict = _more_or_less(slower, "tokens/s")
    if abs(dearer) > _MATTERS:
        verdict += f" at {more_cost(dearer)} per token"
    if not other.meets(ask):
        late = other.s_per_token > ask.most_s_per_token
        verdict += f", which is too {'slow for the deadline' if late else 'dear for the budget'}"
    causes = _time_causes(best.result, other.result)
    if ask.goal == "cost" and dearer > _MATTERS:
        causes = _cost_causes(best.result, other.result) + causes
    return f"{verdict}{': ' + '; '.join(causes) if causes else ''}."


def more_cost(share: float) -> str:
    """12% less cost, 3 times the cost."""
    if share > 1:
        return f"{1 + share:.3g} times the cost"
    return f"{abs(share):.1%} {'more' if share > 0 else 'less'} cost"


def _ratio(number: float, base: float) -> float:
    return number / base if base else 1.0


def _more_or_less(share: float, of: str) -> str:
    if abs(share) < 0.0005:
        return f"as many {of}"
    return f"{abs(share):.1%} {'more' if share > 0 else 'fewer'} {of}"


def _time_causes(best: Result, other: Result) -> list[str]:
    """What makes it slower; what makes up for some of that goes without saying."""
    causes = []
    gpus = other.plan.num_gpus / best.plan.num_gpus
    if gpus < 1 - _MATTERS:
        causes.append(
            f"it uses {plural(other.plan.num_gpus, 'GPU')} instead of {best.plan.num_gpus}{_idle(other.plan)}"
        )
    if other.gpu_utilization < best.gpu_utilization - _MATTERS:
        causes.append(
            f"its GPUs work {other.gpu_utilization:.1%} of the step instead of {best.gpu_utilization:.1%}"
            f"{_waiting(best, other)}"
        )
    each = _tokens_per_busy_gpu(other) / _tokens_per_busy_gpu(best)
    if each < 1 - _MATTERS:
        causes.append(f"a GPU at work gets {1 - each:.1%} less done{_slower_work(best, other)}")
    return causes


def _idle(plan: Plan) -> str:
    """The data center where most GPUs are left over."""
    used = {use.dc: use.gpus for use in uses(plan)}
    left = {dc.name: dc.num_gpus - used.get(dc.name, 0) for dc in plan.cluster.datacenters}
    name = max(left, key=lambda name: left[name])
    return f" ({left[name]} in {name} are left over)" if left[name] else ""


def _waiting(best: Result, other: Result) -> str:
    grown = {key: getattr(other.shares, key) - getattr(best.shares, key) for key in _WAITS}
    most = max(grown, key=lambda key: grown[key])
    if grown[most] < _MATTERS:
        return ""
    now, before = getattr(other.shares, most), getattr(best.shares, most)
    return f", as {_WAITS[most]} takes {now:.1%} instead of {before:.1%}"


def _tokens_per_busy_gpu(result: Result) -> float:
    busy = result.plan.num_gpus * result.gpu_utilization
    return result.tokens_per_s / busy if busy else 1.0


def _slower_work(best: Result, other: Result) -> str:
    """The first of what decides how much a working GPU gets done, where the two differ."""
    here, there = other.plan, best.plan
    choices = [
        ("GPUs of", "/".join(_gpus(here)), "/".join(_gpus(there))),
        ("tensor parallel", here.tensor_parallel, there.tensor_parallel),
        ("microbatch", here.job.microbatch, there.job.microbatch),
    ]
    for name, mine, theirs in choices:
        if mine != theirs:
            return f" ({name} {mine} instead of {theirs})"
    again, before = _recomputed(other), _recomputed(best)
    if again > before + _MATTERS:
        return f" (recompute is {again:.1%} of its work instead of {before:.1%})"
    return ""


def _recomputed(result: Result) -> float:
    shares = result.shares
    work = shares.forward + shares.recompute + shares.backward + shares.optimizer
    return shares.recompute / work if work else 0.0


def _gpus(plan: Plan) -> list[str]:
    return sorted({plan.cluster.datacenter(use.dc).gpu.name for use in uses(plan)})


def _cost_causes(best: Result, other: Result) -> list[str]:
    tokens, own = best.plan.tokens_per_step, other.plan.tokens_per_step
    gpus = _ratio(other.gpu_cost / own, best.gpu_cost / tokens) - 1
    causes = [f"its GPUs cost {gpus:.1%} more per token"] if gpus > _MATTERS else []
    egress = (other.egress_cost / own - best.egress_cost / tokens) * tokens
    share = egress / (best.gpu_cost + best.egress_cost) if egress else 0.0
    return causes + ([f"its egress adds {share:.1%}"] if share > _MATTERS else [])
