"""A little more of each thing: the plan on a cluster, or with a job, that has it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from geotrain.cluster import Cluster, Datacenter, Link
from geotrain.cluster.cluster import LinkOverride
from geotrain.plan import Plan
from geotrain.planner.use import listed, used_datacenters, uses
from geotrain.simulation import Result
from geotrain.units import RATE, format_rate, format_seconds, parse
from geotrain.workload import Job
from geotrain.workload.job import StageProfile

Resource = Literal["compute", "memory", "bandwidth", "latency", "fabric", "batch", "GPUs"]

_MORE = 1.1
_GIGABIT = parse("1 Gbit/s", RATE)
_SOONER_S = 0.01
_MOST_LINKS = 6
"""Links that are looked at, busiest first."""


@dataclass(frozen=True)
class Nudge:
    """One change, in words and as a plan; making the plan raises InputError where it does not go with the rest."""

    resource: Resource
    what: str
    plan: Callable[[], Plan]


def nudges(result: Result) -> Iterator[Nudge]:
    """What to try on the plan of that step."""
    plan = result.plan
    yield from _gpu_nudges(plan)
    for source, target in _busiest_links(result):
        yield from _link_nudges(plan, source, target)
    if any(dc.fabric is not None for dc in _used(plan)):
        yield Nudge("fabric", "fabric twice as fast", lambda: _with_datacenters(plan, _faster_fabric))
    yield Nudge("batch", "one more microbatch per pipeline and step", lambda: _one_more_microbatch(plan))
    if not plan.replicas:
        yield Nudge("GPUs", f"one more cell with its own batch ({_cell_needs(plan)})", lambda: _one_more_cell(plan))


def _used(plan: Plan) -> list[Datacenter]:
    return [plan.cluster.datacenter(name) for name in used_datacenters(plan)]


def _gpu_nudges(plan: Plan) -> Iterator[Nudge]:
    kinds = list(dict.fromkeys(dc.gpu.name for dc in _used(plan)))
    for kind in kinds:
        name = "GPUs" if len(kinds) == 1 else kind
        yield Nudge("compute", f"{name} 10% faster", partial(_faster_gpus, plan, kind))
        yield Nudge("memory", f"{name} with 10% more memory", partial(_larger_gpus, plan, kind))


def _busiest_links(result: Result) -> list[tuple[str, str]]:
    """Both directions of a link count as one."""
    busy: dict[tuple[str, str], float] = {}
    for link in result.links:
        ends = (link.source, link.target) if (link.target, link.source) not in busy else (link.target, link.source)
        busy[ends] = max(busy.get(ends, 0.0), link.busy_fraction)
    return sorted(busy, key=lambda ends: -busy[ends])[:_MOST_LINKS]


def _link_nudges(plan: Plan, source: str, target: str) -> Iterator[Nudge]:
    ways = {(a, b): plan.cluster.link(a, b) for a, b in ((source, target), (target, source))}
    link, between = ways[source, target], f"between {source} and {target}"
    if link.pair_cap is not None:
        more = _GIGABIT if link.pair_cap >= _GIGABIT else link.pair_cap * (_MORE - 1)
        yield Nudge(
            "bandwidth",
            f"{format_rate(more)} more per pair {between}",
            lambda: _with_links(plan, ways, lambda way: {"pair_cap": (way.pair_cap or math.inf) + more}),
        )
    if link.capacity is not None:
        yield Nudge(
            "bandwidth",
            f"10% more capacity {between}",
            lambda: _with_links(plan, ways, lambda way: {"capacity": (way.capacity or math.inf) * _MORE}),
        )
    if link.rtt_s:
        less = _SOONER_S if link.rtt_s >= 2 * _SOONER_S else link.rtt_s / 4
        yield Nudge(
            "latency",
            f"{format_seconds(less)} less round trip {between}",
            lambda: _with_links(plan, ways, lambda way: {"rtt_s": max(0.0, (way.rtt_s or 0.0) - less)}),
        )


def _with_links(plan: Plan, ways: dict[tuple[str, str], Link], change: Callable[[Link], dict[str, float]]) -> Plan:
    overrides = list(plan.cluster.wan.links)
    for (source, target), link in ways.items():
        changed = {name: value for name, value in change(link).items() if math.isfinite(value)}
        overrides.append(LinkOverride.model_validate({"source": source, "target": target, **changed}))
    wan = plan.cluster.wan.model_copy(update={"links": overrides})
    return plan.change(cluster=plan.cluster.model_copy(update={"wan": wan}))


def _with_datacenters(plan: Plan, change: Callable[[Datacenter], Datacenter], **choices: object) -> Plan:
    cluster = plan.cluster
    changed: Cluster = cluster.model_copy(update={"datacenters": [change(dc) for dc in cluster.datacenters]})
    return plan.change(cluster=changed, **choices)


def _faster_fabric(dc: Datacenter) -> Datacenter:
    if dc.fabric is None:
        return dc
    return dc.model_copy(update={"fabric": dc.fabric.model_copy(update={"rate": 2 * dc.fabric.rate})})


def _larger_gpus(plan: Plan, kind: str) -> Plan:
    def larger(dc: Datacenter) -> Datacenter:
        if dc.gpu.name != kind:
            return dc
        return dc.model_copy(update={"gpu": dc.gpu.model_copy(update={"memory_bytes": dc.gpu.memory_bytes * _MORE})})

    # The plan's cap was chosen for the memory there is.
    return _with_datacenters(plan, larger, max_in_flight="auto")


def _faster_gpus(plan: Plan, kind: str) -> Plan:
    def faster(dc: Datacenter) -> Datacenter:
        if dc.gpu.name != kind:
            return dc
        names = ("bf16", "fp16", "fp32", "memory_bandwidth", "nvlink")
        rates = {name: getattr(dc.gpu, name) for name in names}
        more = {name: rate * _MORE for name, rate in rates.items() if rate is not None}
        return dc.model_copy(update={"gpu": dc.gpu.model_copy(update=more)})

    stages = [stage for stage in range(len(plan.stages)) if plan.datacenter_of(stage).gpu.name == kind]
    return _with_datacenters(plan, faster, job=_measured_on_faster(plan, set(stages)))


def _measured_on_faster(plan: Plan, stages: set[int]) -> Job:
    """The job with the measured times of those stages shortened, where it has any."""
    job, profile = plan.job, plan.job.profile
    entries = [_shortened(profile.of_stage(s)) if s in stages else profile.of_stage(s) for s in range(len(plan.stages))]
    if entries == [profile.of_stage(s) for s in range(len(plan.stages))]:
        return job
    return job.model_copy(update={"profile": profile.model_copy(update={"stage": entries})})


def _shortened(measured: StageProfile) -> StageProfile:
    names = ("forward_s", "backward_s", "recompute_s", "weight_grad_s")
    times = {name: getattr(measured, name) for name in names}
    return measured.model_copy(update={name: time / _MORE for name, time in times.items() if time is not None})


def _one_more_microbatch(plan: Plan) -> Plan:
    job = plan.job
    if job.microbatches is not None:
        return plan.change(job=job.model_copy(update={"microbatches": job.microbatches + 1}))
    assert job.global_batch is not None
    more = job.global_batch + plan.num_pipelines * job.microbatch
    return plan.change(job=job.model_copy(update={"global_batch": more}))


def _missing_nodes(plan: Plan) -> dict[str, int]:
    """Nodes that each data center would need on top for one more cell."""
    missing = {}
    for use in uses(plan):
        dc = plan.cluster.datacenter(use.dc)
        free = dc.num_slots(plan.tensor_parallel) - use.gpus // plan.tensor_parallel
        slots = len(use.stages) * plan.pipelines_per_cell - free
        missing[use.dc] = max(0, math.ceil(slots / (dc.gpus_per_node // plan.tensor_parallel)))
    return missing


def _cell_needs(plan: Plan) -> str:
    wanted = [f"{nodes} more in {name}" for name, nodes in _missing_nodes(plan).items() if nodes]
    return f"nodes: {listed(wanted)}" if wanted else "on GPUs that are there"


def _one_more_cell(plan: Plan) -> Plan:
    missing = _missing_nodes(plan)

    def larger(dc: Datacenter) -> Datacenter:
        return dc.model_copy(update={"nodes": dc.nodes + missing.get(dc.name, 0)})

    job = plan.job
    if job.global_batch is not None:  # as much work for every pipeline as before
        more = plan.pipelines_per_cell * plan.num_microbatches * job.microbatch
        job = job.model_copy(update={"global_batch": job.global_batch + more})
    return _with_datacenters(plan, larger, cells=plan.cells + 1, job=job)
