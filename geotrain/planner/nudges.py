"""A little more of each thing: the cluster, and the job's measured times, with more of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from geotrain.cluster import Cluster, Datacenter
from geotrain.cluster.cluster import LinkOverride
from geotrain.planner.use import used_datacenters
from geotrain.simulation import Result
from geotrain.units import RATE, format_rate, parse
from geotrain.workload import Job
from geotrain.workload.job import StageProfile

Resource = Literal["compute", "memory", "bandwidth", "fabric", "GPUs"]

_MORE = 1.1
_GIGABIT = parse("1 Gbit/s", RATE)
_MOST_LINKS = 3
"""Links that are looked at, busiest first."""
_RATES = ("bf16", "fp16", "fp32", "memory_bandwidth", "nvlink")
_TIMES = ("forward_s", "backward_s", "recompute_s", "weight_grad_s")


@dataclass(frozen=True)
class Nudge:
    """One change in words, and what there is with it."""

    resource: Resource
    what: str
    cluster: Cluster
    job: Job


def one_more_node(cluster: Cluster, job: Job) -> Iterator[Nudge]:
    """Yield one more node in each data center."""
    for name in (dc.name for dc in cluster.datacenters):
        larger = partial(_with_one_more, name)
        yield Nudge("GPUs", f"one more node in {name}", _with_datacenters(cluster, larger), job)


def _with_one_more(name: str, dc: Datacenter) -> Datacenter:
    return dc.model_copy(update={"nodes": dc.nodes + 1}) if dc.name == name else dc


def better_parts(cluster: Cluster, job: Job, result: Result) -> Iterator[Nudge]:
    """Yield better GPUs, links and fabrics, of those that the plan of that step uses."""
    used = [cluster.datacenter(name) for name in used_datacenters(result.plan)]
    kinds = list(dict.fromkeys(dc.gpu.name for dc in used))
    for kind in kinds:
        yield from _better_gpus(cluster, job, kind, "GPUs" if len(kinds) == 1 else kind)
    for source, target in _busiest_links(result):
        yield from _faster_link(cluster, job, source, target)
    if any(dc.fabric is not None for dc in used):
        yield Nudge("fabric", "fabric twice as fast", _with_datacenters(cluster, _faster_fabric), job)


def _with_datacenters(cluster: Cluster, change: Callable[[Datacenter], Datacenter]) -> Cluster:
    return cluster.model_copy(update={"datacenters": [change(dc) for dc in cluster.datacenters]})


def _better_gpus(cluster: Cluster, job: Job, kind: str, name: str) -> Iterator[Nudge]:
    faster = _with_datacenters(cluster, partial(_with_more, kind, _RATES))
    if not _has_measured_times(job):
        yield Nudge("compute", f"{name} 10% faster", faster, job)
    elif name == "GPUs":  # of several kinds it is not known which was measured
        yield Nudge("compute", f"{name} 10% faster", faster, _measured_on_faster(job))
    larger = _with_datacenters(cluster, partial(_with_more, kind, ("memory_bytes",)))
    yield Nudge("memory", f"{name} with 10% more memory", larger, job)


def _has_measured_times(job: Job) -> bool:
    stage = job.profile.stage
    entries = stage if isinstance(stage, list) else [stage]
    return any(getattr(entry, name) is not None for entry in entries for name in _TIMES)


def _with_more(kind: str, names: tuple[str, ...], dc: Datacenter) -> Datacenter:
    """With 10% more of those figures, if its GPUs are of that kind."""
    if dc.gpu.name != kind:
        return dc
    figures = {name: getattr(dc.gpu, name) for name in names}
    more = {name: figure * _MORE for name, figure in figures.items() if figure is not None}
    return dc.model_copy(update={"gpu": dc.gpu.model_copy(update=more)})


def _measured_on_faster(job: Job) -> Job:
    """The job with measured times that are as much shorter."""
    stage = job.profile.stage
    entries = [_shortened(entry) for entry in stage] if isinstance(stage, list) else _shortened(stage)
    return job.model_copy(update={"profile": job.profile.model_copy(update={"stage": entries})})


def _shortened(measured: StageProfile) -> StageProfile:
    times = {name: getattr(measured, name) for name in _TIMES}
    return measured.model_copy(update={name: time / _MORE for name, time in times.items() if time is not None})


def _busiest_links(result: Result) -> list[tuple[str, str]]:
    """Both directions of a link count as one."""
    busy: dict[tuple[str, str], float] = {}
    for link in result.links:
        ends = (link.source, link.target) if (link.target, link.source) not in busy else (link.target, link.source)
        busy[ends] = max(busy.get(ends, 0.0), link.busy_fraction)
    return sorted(busy, key=lambda ends: -busy[ends])[:_MOST_LINKS]


def _faster_link(cluster: Cluster, job: Job, source: str, target: str) -> Iterator[Nudge]:
    link, between = cluster.link(source, target), f"between {source} and {target}"
    if link.pair_cap is not None:
        more = _GIGABIT if link.pair_cap >= _GIGABIT else link.pair_cap * (_MORE - 1)
        changed = _with_link(cluster, source, target, "pair_cap", lambda cap: cap + more)
        yield Nudge("bandwidth", f"{format_rate(more)} more per pair {between}", changed, job)
    if link.capacity is not None:
        changed = _with_link(cluster, source, target, "capacity", lambda capacity: capacity * _MORE)
        yield Nudge("bandwidth", f"10% more capacity {between}", changed, job)


def _with_link(cluster: Cluster, source: str, target: str, field: str, change: Callable[[float], float]) -> Cluster:
    """The cluster with a limit changed in both directions, where there is one."""
    links = list(cluster.wan.links)
    for here, there in ((source, target), (target, source)):
        limit = getattr(cluster.link(here, there), field)
        if limit is not None:
            links.append(LinkOverride.model_validate({"source": here, "target": there, field: change(limit)}))
    return cluster.model_copy(update={"wan": cluster.wan.model_copy(update={"links": links})})


def _faster_fabric(dc: Datacenter) -> Datacenter:
    if dc.fabric is None:
        return dc
    return dc.model_copy(update={"fabric": dc.fabric.model_copy(update={"rate": 2 * dc.fabric.rate})})
