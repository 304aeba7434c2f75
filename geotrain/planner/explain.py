"""Why this plan: what binds it, whether each data center is worth it, and why the others lost.

Sentences are made here, from Results; how they are shown is the reports' business.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geotrain.plan import Plan
from geotrain.planner.answer import Answer, Scored
from geotrain.planner.ask import Goal
from geotrain.planner.rivals import Rival, more_cost, rivals
from geotrain.planner.sensitivity import Change
from geotrain.planner.use import unused_datacenters, used_datacenters
from geotrain.simulation import Result
from geotrain.units import format_bytes, format_rate, format_seconds, plural

NOT_LOOKED_FOR = "not looked for"
LONG = "the search is long"


@dataclass(frozen=True, kw_only=True)
class Worth:
    """What one data center brings to the job."""

    dc: str
    used: bool
    change: float | None
    """Of the goal (tokens per second, or cost per token), from the best plan without it to the best with it; above 0 is
    better. None where it is not in use, where nothing fits without it, and where that was not looked for."""
    tokens_per_s: float | None = None
    """Of the best plan without it, which a search of its own found."""
    cost_per_billion_tokens: float | None = None
    """Likewise."""
    reason: str
    """A few words."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Everything there is to say about the choice."""

    binds: tuple[str, ...]
    worth: tuple[Worth, ...]
    """Per data center of the cluster; used ones first, the least worth of them first."""
    changes: tuple[Change, ...]
    rivals: tuple[Rival, ...]

    @property
    def next_datacenter(self) -> str:
        """Whether the next data center is worth it, in a sentence."""
        return next_datacenter(self.worth)


def explain(
    answer: Answer,
    without: Mapping[str, Scored | None] | None = None,
    changes: Sequence[Change] = (),
    *,
    why_not: str = LONG,
) -> Explanation:
    """Say why this plan, from searches that were made.

    `without` are the best plans without one data center and `changes` what more of one thing would bring, where that
    was looked for; `why_not` says why it was not.
    """
    return Explanation(
        binds=tuple(binds(answer.best.result)),
        worth=worth(answer, without, why_not=why_not),
        changes=tuple(changes),
        rivals=tuple(rivals(answer)),
    )


def binds(result: Result) -> list[str]:
    """What keeps the step from being shorter, one sentence each: bound, waiting, memory, links."""
    shares = result.shares
    sentences = [
        f"No schedule of this layout{_chunks(result.plan)} takes less than {format_seconds(result.bound.total_s)}, "
        f"because of the {_binding(result)}; the step takes {result.step_over_bound:.3f} times that.",
        f"GPUs work {result.gpu_utilization:.1%} of the step; they wait {shares.wan:.1%} for the WAN, "
        f"{shares.pipeline:.1%} for neighbours (fill, drain, imbalance), {shares.fabric:.1%} for the fabric and "
        f"{shares.all_reduce:.1%} for the all-reduce.",
        _fullest(result),
    ]
    return sentences + ([_busiest(result)] if result.links else [])


def _chunks(plan: Plan) -> str:
    """What the bound holds for: interleaved schedules hand the first microbatch on sooner."""
    return (
        " with one chunk of layers per stage" if plan.interleave == 1 else f" with {plan.interleave} chunks per stage"
    )


def _binding(result: Result) -> str:
    """`compute of stage 3` with its data center."""
    words = result.bound.binding.split()
    if words[:3] == ["compute", "of", "stage"]:
        stage = int(words[3].rstrip(","))
        words[3] = f"{stage} in {result.plan.stages[stage].dc}" + words[3][len(str(stage)) :]
    return " ".join(words)


def _fullest(result: Result) -> str:
    stage = max(range(len(result.memory)), key=lambda s: result.memory[s].total_bytes / result.memory[s].limit_bytes)
    memory = result.memory[stage]
    return (
        f"Memory is fullest on stage {stage} in {result.plan.stages[stage].dc}: {format_bytes(memory.total_bytes)} of "
        f"{format_bytes(memory.limit_bytes)} ({memory.total_bytes / memory.limit_bytes:.0%}), with "
        f"{memory.in_flight:.3g} of {plural(result.plan.num_microbatches, 'microbatch')} in flight."
    )


def _busiest(result: Result) -> str:
    link = max(result.links, key=lambda link: link.busy_fraction)
    return (
        f"The busiest link is {link.source} to {link.target}: on the wire for {link.busy_fraction:.0%} of the step, at "
        f"{format_rate(link.rate)} per pair."
    )


def worth(
    answer: Answer, without: Mapping[str, Scored | None] | None = None, *, why_not: str = LONG
) -> tuple[Worth, ...]:
    """Each data center: the plan against the best without it.

    `without` are those plans by the data center that they do without, each from a search of its own, None where nothing
    fits; `why_not` says why one was not looked for. Other plans that the search met say nothing about it: the best
    without a data center need not be among them.
    """
    plan = answer.best.result.plan
    used = [_worth_of(name, answer, without or {}, why_not) for name in used_datacenters(plan)]
    left_out = [
        Worth(dc=name, used=False, change=None, reason=_unused_reason(plan, name)) for name in unused_datacenters(plan)
    ]

    def least_first(one: Worth) -> tuple[float, int]:
        return math.inf if one.change is None else round(one.change, 4), plan.cluster.datacenter(one.dc).num_gpus

    # Of equals, the later one in the pipeline.
    return (*sorted(reversed(used), key=least_first), *left_out)


def _worth_of(name: str, answer: Answer, without: Mapping[str, Scored | None], why_not: str) -> Worth:
    if name not in without:
        return Worth(dc=name, used=True, change=None, reason=f"{NOT_LOOKED_FOR}, as {why_not}")
    rival = without[name]
    if rival is None:
        return Worth(dc=name, used=True, change=None, reason="nothing fits without it")
    return Worth(
        dc=name,
        used=True,
        change=_better(answer.best, rival, answer.ask.goal),
        tokens_per_s=float(rival.result.tokens_per_s),
        cost_per_billion_tokens=float(rival.result.cost_per_billion_tokens),
        reason=f"it brings {_difference(answer.best, rival)}",
    )


def _better(one: Scored, other: Scored, goal: Goal) -> float:
    """How much more tokens per second, or how much less cost per token, `one` gives."""
    if goal == "time":
        return other.s_per_token / one.s_per_token - 1
    return 1 - one.cost_per_token / other.cost_per_token if other.cost_per_token else 0.0


def _difference(one: Scored, other: Scored) -> str:
    """`one` against `other` in both respects."""
    speed = other.s_per_token / one.s_per_token - 1
    words = f"{abs(speed):.1%} {'more' if speed >= 0 else 'fewer'} tokens/s"
    cost = one.cost_per_token / other.cost_per_token - 1 if other.cost_per_token else 0.0
    return words if abs(cost) < 0.0005 else f"{words} at {more_cost(cost)} per token"


def _unused_reason(plan: Plan, name: str) -> str:
    return "the best plan does without it" if plan.cluster.datacenter(name).num_gpus else "it has no GPUs"


def next_datacenter(worths: tuple[Worth, ...]) -> str:
    """One sentence: the least of the used ones, and the ones left out."""
    used, left_out = [one for one in worths if one.used], [one for one in worths if not one.used]
    parts = []
    if len(used) > 1 and used[0].reason.startswith(NOT_LOOKED_FOR):
        parts.append(f"what each brings was {used[0].reason}; --survive dc looks for it")
    elif len(used) > 1:
        parts.append(f"{used[0].dc} is {_verdict(used[0])} it: {used[0].reason}")
    parts += [f"{one.dc} is left out: {one.reason}" for one in left_out]
    return "; ".join(parts or [f"{used[0].dc} is the only data center there is"]) + "."


def _verdict(one: Worth) -> str:
    if one.change is None or one.change > 0.01:
        return "worth"
    return "hardly worth" if one.change > 0.001 else "not worth"
