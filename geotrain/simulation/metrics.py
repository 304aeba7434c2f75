"""Figures of a step, from what was played."""

from itertools import pairwise

import numpy as np

from geotrain.action import Kind
from geotrain.network import connections_for
from geotrain.plan import Plan, Sharing
from geotrain.simulation.play import Played
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Bound, Gain, LinkUse, Result, StageMemory, TimeShare
from geotrain.timeline import Floats, Ints, Timeline
from geotrain.units import gigabytes, hours


def measure(played: Played, bound: Bound, gains: tuple[Gain, ...] = ()) -> Result:
    """All figures of the step."""
    problem, plan = played.problem, played.problem.plan
    timeline = played.timeline()
    step = timeline.step_time_s
    slots = len(plan.stages)
    gpus_per_slot = plan.tensor_parallel
    utilization = float(timeline.busy_s.mean() / step) if step else 0.0
    links = _gradient_links(problem, step) if plan.replicas else _links(played, timeline)
    model_flops = 3 * sum(cost.flops.forward for cost in problem.costs) * plan.num_microbatches * plan.num_pipelines
    peak_flops = sum(
        plan.datacenter_of(slot).gpu.peak_flops(plan.job.precision) * gpus_per_slot * plan.num_pipelines
        for slot in range(slots)
    )
    return Result(
        plan=plan,
        timeline=timeline,
        sharing=_sharing(played),
        bound=bound,
        step_time_s=step,
        gpu_utilization=utilization,
        mfu=model_flops / (peak_flops * step) if step else 0.0,
        tokens_per_s=plan.tokens_per_step / step if step else 0.0,
        memory=_memory(played, timeline),
        links=links,
        shares=_shares(played, timeline),
        gpu_cost=hourly_price(plan) * hours(step),
        egress_cost=sum(link.cost for link in links),
        gains=gains,
    )


def hourly_price(plan: Plan) -> float:
    """Of all GPUs in use."""
    per_stage = plan.tensor_parallel
    if plan.replicas:
        return sum(dc.price_per_gpu_hour * copies * len(plan.stages) * per_stage for dc, copies in plan.groups)
    stages = range(len(plan.stages))
    return sum(plan.datacenter_of(stage).price_per_gpu_hour * per_stage * plan.num_pipelines for stage in stages)


def _sharing(played: Played) -> list[Sharing | None]:
    stages = played.problem.plan.stages
    sharing: list[Sharing | None] = []
    for boundary, (here, there) in enumerate(pairwise(stages)):
        crosses = here.dc != there.dc
        sharing.append(("temporal" if boundary in played.wiring.pooled else "spatial") if crosses else None)
    return sharing


def _memory(played: Played, timeline: Timeline) -> list[StageMemory]:
    problem, plan = played.problem, played.problem.plan
    slots = len(plan.stages)
    peak = problem.activation_units(played.peak_units)
    in_flight = timeline.peak_in_flight()
    memory = []
    for slot in range(slots):
        mine = [cost.memory for cost in problem.costs[slot::slots]]
        apart = max(m.workspace_bytes - (m.recomputed_bytes if played.split else 0.0) for m in mine)
        memory.append(
            StageMemory(
                static_bytes=sum(m.static_bytes for m in mine),
                activations_bytes=float(peak[slot]) * max(m.activation_bytes for m in mine),
                workspace_bytes=apart,
                in_flight=float(in_flight[slot]) / plan.interleave,
                limit_bytes=plan.training_bytes(slot),
            )
        )
    return memory


def _links(played: Played, timeline: Timeline) -> list[LinkUse]:
    problem, plan = played.problem, played.problem.plan
    stages, transfers = plan.stages, timeline.transfers
    dcs = [stage.dc for stage in stages]
    swapped = {} if problem.swap is None else problem.swap.ways()
    links = []
    for (source, target), size in problem.wan_bytes.items():
        hops = [h for h in problem.hops if (dcs[h.source], dcs[h.target]) == (source, target)]
        on_link = np.zeros(len(transfers), dtype=np.bool_)
        for hop_source, hop_target in {(h.source, h.target) for h in hops}:
            on_link |= (transfers.source == hop_source) & (transfers.target == hop_target)
        busy = _union_s(transfers.start_s[on_link], transfers.end_s[on_link])
        if problem.swap is not None and (source, target) in swapped:  # once all transfers are through
            rate, connections = swapped[source, target]
            busy += problem.swap.size_bytes / rate
        if hops:
            rate, connections = hops[0].own.rate * hops[0].own.sharing, hops[0].own.connections
        price = plan.cluster.link(source, target).price_per_gb or 0.0
        links.append(
            LinkUse(
                source=source,
                target=target,
                size_bytes=size,
                busy_fraction=busy / timeline.step_time_s if timeline.step_time_s else 0.0,
                rate=rate,
                connections=connections,
                cost=gigabytes(size) * price,
            )
        )
    return links


def _gradient_links(problem: Problem, step_s: float) -> list[LinkUse]:
    """Gradients around the ring of data centers; activations stay inside each."""
    ring, plan = problem.ring, problem.plan
    busy = max(ring.across_s(cost.gradient_bytes) for cost in problem.costs)
    return [
        LinkUse(
            source=source,
            target=target,
            size_bytes=size,
            busy_fraction=min(1.0, busy / step_s) if step_s else 0.0,
            rate=rate,
            connections=connections_for(link) if plan.wan.connections == "auto" else plan.wan.connections,
            cost=gigabytes(size) * (link.price_per_gb or 0.0),
        )
        for ((source, target), size), link, rate in zip(problem.wan_bytes.items(), ring.links, ring.rates, strict=True)
    ]


def _union_s(start: Floats, end: Floats) -> float:
    """Seconds covered by at least one of the intervals."""
    if len(start) == 0:
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begins = np.maximum(start[1:], end[:-1])
    return float(end[0] - start[0] + np.maximum(end[1:] - begins, 0.0).sum())


def _shares(played: Played, timeline: Timeline) -> TimeShare:
    problem = played.problem
    step = timeline.step_time_s
    whole = step * timeline.num_stages * timeline.num_pipelines
    if whole == 0:
        return TimeShare(forward=0, recompute=0, backward=0, optimizer=0, all_reduce=0, wan=0, fabric=0, pipeline=0)
    kinds = {kind: float(busy.sum()) for kind, busy in timeline.busy_by_kind_s().items()}
    pipelines = timeline.num_pipelines
    wan, fabric = _network_waits(problem, timeline)
    shares = {
        "forward": kinds[Kind.F],
        "recompute": kinds[Kind.R],
        "backward": kinds[Kind.B] + kinds[Kind.I] + kinds[Kind.W],
        "optimizer": float((timeline.update_end_s - timeline.update_start_s).sum()) * pipelines,
        "all_reduce": float((timeline.update_start_s - timeline.reduce_start_s).sum()) * pipelines,
        "wan": wan,
        "fabric": fabric,
    }
    known = {name: seconds / whole for name, seconds in shares.items()}
    return TimeShare(**known, pipeline=max(0.0, 1 - sum(known.values())))


def _network_waits(problem: Problem, timeline: Timeline) -> tuple[float, float]:
    """Idle seconds before an action while its input is queued for, or crossing, the WAN; or a fabric."""
    actions, transfers = timeline.actions, timeline.transfers
    if len(transfers) == 0:
        return 0.0, 0.0
    num_model_stages, microbatches = len(problem.costs), problem.plan.num_microbatches
    size = timeline.num_pipelines * num_model_stages * microbatches

    def index(pipeline: Ints, stage: Ints, microbatch: Ints) -> Ints:
        return np.asarray((pipeline * num_model_stages + stage) * microbatches + microbatch)

    order = timeline.by_slot
    slot = timeline.slot_of_action[order]
    free = np.zeros(len(order))
    same = slot[1:] == slot[:-1]
    free[1:][same] = actions.end_s[order][:-1][same]
    idle_from = np.empty(len(order))
    idle_from[order] = free

    waits = {True: 0.0, False: 0.0}
    _, place = np.unique([stage.dc for stage in problem.plan.stages], return_inverse=True)
    crosses = place[transfers.source] != place[transfers.target]
    forward = actions.kind == Kind.F
    back = (actions.kind == Kind.B) | (actions.kind == Kind.I)
    for backward, rows, step in ((False, np.flatnonzero(forward), 1), (True, np.flatnonzero(back), -1)):
        sent = np.full(size, np.inf)
        arrived = np.full(size, -np.inf)
        over_wan = np.zeros(size, dtype=np.bool_)
        moved = np.flatnonzero(transfers.backward == backward)
        at = index(transfers.pipeline[moved], transfers.stage[moved] + step, transfers.microbatch[moved])
        arrived[at] = transfers.arrive_s[moved]
        over_wan[at] = crosses[moved]
        here = index(actions.pipeline[rows], actions.stage[rows], actions.microbatch[rows])
        neighbour = actions.stage[rows] + step
        inside = (neighbour >= 0) & (neighbour < num_model_stages)
        sent[here[inside] + step * microbatches] = actions.end_s[rows[inside]]
        idle = actions.start_s[rows] > idle_from[rows]
        rows, here = rows[idle], here[idle]
        waited = np.minimum(actions.start_s[rows], arrived[here]) - np.maximum(idle_from[rows], sent[here])
        waited = np.maximum(waited, 0.0)
        for wan in waits:
            waits[wan] += float(waited[over_wan[here] == wan].sum())
    return waits[True], waits[False]
