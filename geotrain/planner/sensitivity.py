"""What a little more of one thing would bring: the best plan with it, by a search of its own.

The plan as it is counts too, on the cluster that has more: a search may miss it, and more never takes anything away.
"""

from dataclasses import dataclass

from geotrain.cluster import Cluster
from geotrain.planner.answer import Answer, Find, Scored
from geotrain.planner.layout import with_microbatch
from geotrain.planner.nudges import Nudge, Resource, better_parts, one_more_node
from geotrain.simulation import Result, run, simulate
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.metrics import measure
from geotrain.simulation.play import Played, play
from geotrain.simulation.problem import Problem
from geotrain.workload import Job

_FEW_LAYOUTS, _MANY_LAYOUTS = 2_000, 20_000
"""A search that considered more than this is repeated for more nodes only, or not at all."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A little more of one thing, and the best plan with it."""

    resource: Resource
    what: str
    step_time_s: float
    tokens_per_s: float
    gain: float
    """Tokens per second, as a share of the plan's own; below 0 only where the goal is cost."""
    cost_per_billion_tokens: float


def sensitivity(cluster: Cluster, job: Job, answer: Answer, find: Find) -> list[Change]:
    """Return a change for one more node in each data center and for better GPUs, links and fabrics, best first."""
    best = answer.best.result
    nudges: list[Nudge] = []
    if answer.considered <= _MANY_LAYOUTS:
        nudges += one_more_node(cluster, job)
    if answer.considered <= _FEW_LAYOUTS:
        nudges += better_parts(cluster, job, best)
    lists = run(best.plan)[0] if nudges and best.plan.schedule == "auto" else None
    goal = answer.ask.goal
    found = []
    for nudge in nudges:
        plans = [find(nudge.cluster, nudge.job, answer.ask).best, _as_planned(best, lists, nudge)]
        found.append((nudge, min(plans, key=lambda scored: scored.score(goal))))
    found.sort(key=lambda one: one[1].score(goal))
    return [_change(best, nudge, scored) for nudge, scored in found]


def _change(best: Result, nudge: Nudge, scored: Scored) -> Change:
    return Change(
        resource=nudge.resource,
        what=nudge.what,
        step_time_s=scored.result.step_time_s,
        tokens_per_s=scored.result.tokens_per_s,
        gain=scored.result.tokens_per_s / best.tokens_per_s - 1,
        cost_per_billion_tokens=scored.result.cost_per_billion_tokens,
    )


def _as_planned(best: Result, lists: Played | None, nudge: Nudge) -> Scored:
    """The same plan with the change; by the schedule that was found without it, where it has lists."""
    plan = best.plan.change(cluster=nudge.cluster, job=with_microbatch(nudge.job, best.plan.job.microbatch))
    if lists is None:
        return Scored(result=simulate(plan))
    problem = Problem(plan)
    return Scored(result=measure(play(problem, lists.orders(), lists.wiring.pooled), lower_bound(problem)))
