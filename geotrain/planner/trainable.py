"""The best plan that `geotrain train` can run, where the best of all is not one."""

from dataclasses import replace

from geotrain.cluster import Cluster
from geotrain.errors import DoesNotFitError
from geotrain.planner.answer import Answer, Find, Scored
from geotrain.runnable import why_no_plan_is_runnable, why_not_runnable
from geotrain.workload import Job

_SHARE = 3
"""The search without replicas may take one part of so many of what the first one may."""


def best_runnable(cluster: Cluster, job: Job, answer: Answer, find: Find) -> Scored | None:
    """Return it from what was simulated and, where replicas are in the way, from a short search without them.

    None where the answer's own plan can be run, or where no plan for the job can.
    """
    best, ask = answer.best.result.plan, answer.ask
    if not why_not_runnable(best) or why_no_plan_is_runnable(job):
        return None
    found = [*answer.others, *answer.frontier, *([answer.published] if answer.published else [])]
    if best.replicas and ask.across == "any":
        try:
            other = find(cluster, job, replace(ask.shortened(_SHARE), across="pipeline"))
            found += [other.best, *other.others]
        except DoesNotFitError:
            pass
    runnable = [one for one in found if one.meets(ask) and not why_not_runnable(one.result.plan)]
    return min(runnable, key=lambda one: one.score(ask.goal), default=None)
