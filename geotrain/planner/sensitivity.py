"""What a little more of one thing would bring: the same plan again on a cluster that has it.

Everything else stays as planned, so the figures say what the thing is worth to this plan, not what a new search with
it would find.
"""

from dataclasses import dataclass

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.planner.nudges import Nudge, Resource, nudges
from geotrain.simulation import Result, run, simulate
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.metrics import measure
from geotrain.simulation.play import Played, play
from geotrain.simulation.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Change:
    """A little more of one thing, and what it brings to the plan."""

    resource: Resource
    what: str
    step_time_s: float
    tokens_per_s: float
    gain: float
    """Tokens per second, as a share of the plan's own; a change for the better never takes anything away."""
    cost_per_billion_tokens: float


def sensitivity(result: Result) -> list[Change]:
    """Every change that can be simulated, the one that brings most first."""
    lists = run(result.plan)[0] if result.plan.schedule == "auto" else None
    changes = [change for nudge in nudges(result) if (change := _changed(result, lists, nudge)) is not None]
    return sorted(changes, key=lambda change: -change.gain)


def _changed(result: Result, lists: Played | None, nudge: Nudge) -> Change | None:
    try:
        changed = nudge.plan()
        outcomes = [simulate(changed)]
    except InputError:  # one more of it does not go with the plan, as a batch that no longer divides
        return None
    if lists is not None and changed.num_microbatches == result.plan.num_microbatches:
        outcomes.append(_as_before(changed, lists))
    best = min(outcomes, key=lambda outcome: outcome.step_time_s)
    return Change(
        resource=nudge.resource,
        what=nudge.what,
        step_time_s=best.step_time_s,
        tokens_per_s=best.tokens_per_s,
        gain=max(0.0, best.tokens_per_s / result.tokens_per_s - 1),
        cost_per_billion_tokens=best.cost_per_billion_tokens,
    )


def _as_before(changed: Plan, lists: Played) -> Result:
    """With the schedule that was found without the change: a search may miss it, and would then do worse with more."""
    problem = Problem(changed)
    return measure(play(problem, lists.orders(), lists.wiring.pooled), lower_bound(problem))
