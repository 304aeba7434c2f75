"""Clusters and plans without the names of data centers: what is alike trains equally fast."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from geotrain.cluster import Cluster
from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.planner.answer import Answer, Scored
from geotrain.planner.use import used_datacenters
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.problem import Problem


def in_order(cluster: Cluster) -> list[str]:
    """Return the names of the data centers, sorted by what each is like and what its links are like."""
    names = [dc.name for dc in cluster.datacenters]

    def around(name: str) -> tuple[str, list[tuple[str, str, str]]]:
        others = [other for other in names if other != name]
        links = [
            (_datacenter(cluster, other), _link(cluster, name, other), _link(cluster, other, name)) for other in others
        ]
        return _datacenter(cluster, name), sorted(links)

    return sorted(names, key=around)


def cluster_likeness(cluster: Cluster, names: Sequence[str]) -> Hashable:
    """Return all that counts of those data centers, in that order, and of the links between them."""
    return (
        tuple(_datacenter(cluster, name) for name in names),
        tuple(_link(cluster, *ends) for ends in permutations(names, 2)),
    )


def plan_likeness(plan: Plan) -> Hashable:
    """Return all that the plan's step depends on; the number of nodes is not part of it."""
    names = used_datacenters(plan)
    return (
        tuple(_datacenter(plan.cluster, name, nodes=False) for name in names),
        tuple(_link(plan.cluster, *ends) for ends in permutations(names, 2)),
        tuple((names.index(stage.dc), stage.layers) for stage in plan.stages),
        tuple((names.index(replica.dc), replica.cells) for replica in plan.replicas),
        plan.model_dump_json(exclude={"cluster", "stages", "replicas", "made_by"}),
    )


def _datacenter(cluster: Cluster, name: str, *, nodes: bool = True) -> str:
    return cluster.datacenter(name).model_dump_json(exclude={"name"} if nodes else {"name", "nodes"})


def _link(cluster: Cluster, source: str, target: str) -> str:
    return cluster.link(source, target).model_dump_json()


def renamed(answer: Answer, names: Mapping[str, str], cluster: Cluster) -> Answer:
    """Return the answer for a cluster that is alike; `names` are its own for those in the answer."""

    def rename(scored: Scored) -> Scored:
        result = scored.result
        plan = result.plan.change(
            cluster=cluster,
            stages=[stage.model_copy(update={"dc": names[stage.dc]}) for stage in result.plan.stages],
            replicas=[replica.model_copy(update={"dc": names[replica.dc]}) for replica in result.plan.replicas],
        )
        links = [replace(link, source=names[link.source], target=names[link.target]) for link in result.links]
        return Scored(result=replace(result, plan=plan, links=links, bound=lower_bound(Problem(plan))))

    return replace(
        answer,
        best=rename(answer.best),
        published=None if answer.published is None else rename(answer.published),
        others=tuple(map(rename, answer.others)),
        frontier=tuple(map(rename, answer.frontier)),
    )


def on_cluster(scored: Scored, cluster: Cluster) -> Scored | None:
    """Return the plan on that cluster, None where something that it uses is missing or different there."""
    before = scored.result.plan
    try:
        plan = before.change(cluster=cluster)
    except InputError:
        return None
    return Scored(result=replace(scored.result, plan=plan)) if plan_likeness(plan) == plan_likeness(before) else None
