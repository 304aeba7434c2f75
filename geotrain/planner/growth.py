"""What one more node would bring, planned anew: unlike other changes it can lead to another layout."""

from geotrain.cluster import Cluster
from geotrain.planner.answer import Answer, Find
from geotrain.planner.sensitivity import Change
from geotrain.workload import Job

_MOST_LAYOUTS = 2000
"""A search that considered more than this is not repeated for every data center."""


def one_more_node(cluster: Cluster, job: Job, answer: Answer, find: Find) -> list[Change]:
    """One search for each data center; none where searches are long."""
    if answer.considered > _MOST_LAYOUTS:
        return []
    return [_grown(cluster, job, answer, name, find) for name in (dc.name for dc in cluster.datacenters)]


def _grown(cluster: Cluster, job: Job, answer: Answer, name: str, find: Find) -> Change:
    datacenters = [
        dc.model_copy(update={"nodes": dc.nodes + 1}) if dc.name == name else dc for dc in cluster.datacenters
    ]
    found = find(cluster.model_copy(update={"datacenters": datacenters}), job, answer.ask)
    # What was found without the node is still there with it.
    best = min(found.best, answer.best, key=lambda scored: scored.score(answer.ask.goal))
    return Change(
        resource="GPUs",
        what=f"one more node in {name}, planned anew",
        step_time_s=best.result.step_time_s,
        tokens_per_s=best.result.tokens_per_s,
        gain=max(0.0, answer.best.s_per_token / best.s_per_token - 1),
        cost_per_billion_tokens=best.result.cost_per_billion_tokens,
    )
