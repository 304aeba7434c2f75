"""Why this plan: what binds it, whether each data center is worth it, and why the others lost.

Sentences are made here, from Results; how they are shown is the reports' business.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geotrain.planner.answer import Answer, Scored
from geotrain.planner.ask import Goal
from geotrain.planner.rivals import Rival, more_cost, rivals
from geotrain.planner.sensitivity import Change, sensitivity
from geotrain.planner.use import unused_datacenters, used_datacenters
from geotrain.simulation import Result
from geotrain.units import format_bytes, format_rate, format_seconds, plural


@dataclass(frozen=True, kw_only=True)
class Worth:
    """What one data center brings to the job."""

    dc: str
    used: bool
    change: float | None
    """Of the goal (tokens per second, or cost per token), from the best plan without it to the best with it; above 0 is
    better. None where no other plan was close enough to be simulated."""
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


def explain(answer: Answer, without: Mapping[str, Scored] | None = None, growth: Sequence[Change] = ()) -> Explanation:
    """Simulates the plan again for every change; the rest is read from the answer.

    `without` are the best plans without one data center, `growth` what more of one would bring, where that was looked
    for.
    """
    changes = [*sensitivity(answer.best.result), *growth]
    return Explanation(
        binds=tuple(binds(answer.best.result)),
        worth=worth(answer, without),
        changes=tuple(sorted(changes, key=lambda change: -change.gain)),
        rivals=tuple(rivals(answer)),
    )


def binds(result: Result) -> list[str]:
    """What keeps the step from being shorter, one sentence each: bound, waiting, memory, links."""
    shares = result.shares
    sentences = [
        f"No schedule of this layout takes less than {format_seconds(result.bound.total_s)}, because of the "
        f"{_binding(result)}; the step takes {result.step_over_bound:.3f} times that.",
        f"GPUs work {result.gpu_utilization:.1%} of the step; they wait {shares.wan:.1%} for the WAN, "
        f"{shares.pipeline:.1%} for neighbours (fill, drain, imbalance), {shares.fabric:.1%} for the fabric and "
        f"{shares.all_reduce:.1%} for the all-reduce.",
        _fullest(result),
    ]
    return sentences + ([_busiest(result)] if result.links else [])


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


def worth(answer: Answer, without: Mapping[str, Scored] | None = None) -> tuple[Worth, ...]:
    """Each data center: the best plan with it against the best without it.

    The best of all that were simulated, unless a search of its own found it: `without` are those plans by the data
    center that they do without.
    """
    best, goal, found = answer.best, answer.ask.goal, without or {}
    others = [scored for scored in [*answer.others, *_published(answer)] if scored.meets(answer.ask)]
    used = []
    for name in used_datacenters(best.result.plan):
        free_of_it = [other for other in others if name not in used_datacenters(other.result.plan)]
        free_of_it += [found[name]] if name in found else []
        rival = min(free_of_it, key=lambda other: other.score(goal), default=None)
        change = None if rival is None else _better(best, rival, goal)
        used.append(Worth(dc=name, used=True, change=change, reason=_used_reason(answer, rival)))
    left_out = []
    for name in unused_datacenters(best.result.plan):
        having = [other for other in others if name in used_datacenters(other.result.plan)]
        rival = min(having, key=lambda other: other.score(goal), default=None)
        change = None if rival is None else _better(rival, best, goal)
        left_out.append(Worth(dc=name, used=False, change=change, reason=_unused_reason(answer, name, rival)))
    cluster = best.result.plan.cluster

    def least_first(one: Worth) -> tuple[float, int]:
        return math.inf if one.change is None else round(one.change, 4), cluster.datacenter(one.dc).num_gpus

    # Of equals, the later one in the pipeline.
    return (*sorted(reversed(used), key=least_first), *left_out)


def _published(answer: Answer) -> list[Scored]:
    return [answer.published] if answer.published else []


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


def _used_reason(answer: Answer, rival: Scored | None) -> str:
    if rival is None:
        return "no plan without it can be better" if answer.ending == "proven" else "no plan without it was simulated"
    return f"it brings {_difference(answer.best, rival)}"


def _unused_reason(answer: Answer, name: str, rival: Scored | None) -> str:
    if answer.best.result.plan.cluster.datacenter(name).num_gpus == 0:
        return "it has no GPUs"
    if rival is None:
        return "no plan with it can be better" if answer.ending == "proven" else "no plan with it was simulated"
    return f"the best plan with it gives {_difference(rival, answer.best)}"


def next_datacenter(worths: tuple[Worth, ...]) -> str:
    """One sentence: the least of the used ones, and the ones left out."""
    used, left_out = [one for one in worths if one.used], [one for one in worths if not one.used]
    parts = [f"{used[0].dc} is {_verdict(used[0])} it: {used[0].reason}"] if len(used) > 1 else []
    parts += [f"{one.dc} is left out: {one.reason}" for one in left_out]
    return "; ".join(parts or [f"{used[0].dc} is the only data center there is"]) + "."


def _verdict(one: Worth) -> str:
    if one.change is None or one.change > 0.01:
        return "worth"
    return "hardly worth" if one.change > 0.001 else "not worth"
