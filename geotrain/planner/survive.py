"""What to fall back to when a data center is lost: the best plan on what is left, and what the loss costs."""

from dataclasses import dataclass, replace
from math import inf

from geotrain.cluster import Cluster
from geotrain.errors import DoesNotFitError
from geotrain.planner.answer import Answer, Find, Scored
from geotrain.planner.ask import Ask
from geotrain.planner.use import used_datacenters
from geotrain.workload import Job


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """The plan for the loss of one data center."""

    lost: str
    answer: Answer | None
    """None where nothing fits without it."""
    reason: str
    """Why nothing fits; empty where something does."""
    tokens_per_s_lost: float
    """As a share of what the plan gives; 1 is a standstill."""
    gpus_left: int
    """In the other data centers."""
    gpus_idle: int
    """Of those, not in the fall-back plan."""


def fallbacks(cluster: Cluster, job: Job, answer: Answer, find: Find) -> list[Fallback]:
    """One for each data center that the plan uses. Deadline and budget no longer count."""
    ask = replace(answer.ask, deadline_s=inf, max_cost=inf)
    return [_without(cluster, job, answer, name, ask, find) for name in used_datacenters(answer.best.result.plan)]


def _without(cluster: Cluster, job: Job, answer: Answer, lost: str, ask: Ask, find: Find) -> Fallback:
    left = sum(dc.num_gpus for dc in cluster.datacenters if dc.name != lost)
    found, reason = None, f"{lost} holds all GPUs there are"
    if left:
        try:
            found = find(cluster_without(cluster, lost), job, ask)
            reason = ""
        except DoesNotFitError as error:
            reason = str(error)
    kept = found.best.result.tokens_per_s / answer.best.result.tokens_per_s if found else 0.0
    return Fallback(
        lost=lost,
        answer=found,
        reason=reason,
        tokens_per_s_lost=1 - kept,
        gpus_left=left,
        gpus_idle=left - (found.best.result.plan.num_gpus if found else 0),
    )


def without_the_smallest(cluster: Cluster, job: Job, answer: Answer, find: Find) -> dict[str, Scored]:
    """The best plan without the smallest data center in use, to tell what that one brings; empty if there is none."""
    used = used_datacenters(answer.best.result.plan)
    # Of equals, the later one in the pipeline.
    smallest = min(reversed(used), key=lambda name: cluster.datacenter(name).num_gpus)
    if len(used) < 2:
        return {}
    try:
        found = find(cluster_without(cluster, smallest), job, replace(answer.ask, evaluations=answer.evaluations))
    except DoesNotFitError:
        return {}
    return {smallest: found.best}


def cluster_without(cluster: Cluster, name: str) -> Cluster:
    """The cluster after the loss, without the links to what is gone."""
    datacenters = [dc for dc in cluster.datacenters if dc.name != name]
    links = [link for link in cluster.wan.links if name not in link.directions[0]]
    wan = cluster.wan.model_copy(update={"links": links})
    return cluster.model_copy(update={"datacenters": datacenters, "wan": wan})
