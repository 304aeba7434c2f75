"""What to fall back to when a data center is lost: the best plan on what is left, and what the loss costs."""

from collections.abc import Set
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


def without_each(cluster: Cluster, job: Job, answer: Answer, find: Find) -> dict[str, Scored | None]:
    """The best plan without each data center in use, by a search of its own; None where nothing fits without it."""
    found: dict[str, Scored | None] = {}
    for name in used_datacenters(answer.best.result.plan):
        left = cluster_without(cluster, name)
        if any(dc.num_gpus for dc in left.datacenters):
            without = _found(left, job, answer.ask, find)
            found[name] = None if without is None else without.best
    return found


def alone_in_each(cluster: Cluster, job: Job, answer: Answer, find: Find) -> list[Answer]:
    """The best plan in each single data center where one fits, by a search of its own.

    Deadline and budget do not count. None where the answer is such a plan.
    """
    if len(used_datacenters(answer.best.result.plan)) == 1:
        return []
    ask = replace(answer.ask, deadline_s=inf, max_cost=inf)
    alone = [_found(cluster_of(cluster, {dc.name}), job, ask, find) for dc in cluster.datacenters if dc.num_gpus]
    return [one for one in alone if one is not None]


def _found(cluster: Cluster, job: Job, ask: Ask, find: Find) -> Answer | None:
    try:
        return find(cluster, job, ask)
    except DoesNotFitError:
        return None


def cluster_without(cluster: Cluster, name: str) -> Cluster:
    """The cluster after the loss, without the links to what is gone."""
    return cluster_of(cluster, {dc.name for dc in cluster.datacenters} - {name})


def cluster_of(cluster: Cluster, names: Set[str]) -> Cluster:
    """Only those data centers and the links between them."""
    datacenters = [dc for dc in cluster.datacenters if dc.name in names]
    links = [link for link in cluster.wan.links if names >= set(link.directions[0])]
    wan = cluster.wan.model_copy(update={"links": links})
    return cluster.model_copy(update={"datacenters": datacenters, "wan": wan})
