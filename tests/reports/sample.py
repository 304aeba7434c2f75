"""Results made by hand: a small step that is easy to check by eye, and a large one to measure size and speed.

A few lines of list scheduling stand in for the simulator, so that these tests need nothing but the contract.
"""

import heapq
from dataclasses import fields, replace
from functools import cache

import numpy as np

from geotrain.action import Kind
from geotrain.plan import Plan, Sharing
from geotrain.simulation.result import Bound, LinkUse, Result, StageMemory, TimeShare
from geotrain.timeline import Actions, Timeline, Transfers
from geotrain.units import SIZE, parse

FORWARD_S, BACKWARD_S, REDUCE_S, UPDATE_S = 0.0125, 0.025, 0.004, 0.002
WAN_S, LATENCY_S, FABRIC_S = 0.006, 0.02, 0.0004
BOUNDARY_BYTES = 33_554_432.0


def small(
    *, sharing: Sharing = "temporal", names=("east", "south", "west"), price: float = 2.0, cells: int = 1
) -> Result:
    """4 stages over 3 data centers, 3 pipelines, 4 microbatches."""
    return make([names[0], names[0], names[1], names[2]], 3, 4, sharing=sharing, price=price, cells=cells)


@cache
def large() -> Result:
    """60 stages, 240 microbatches, 4 pipelines: about 300,000 spans."""
    return make([name for name in ("east", "south", "west") for _ in range(20)], 4, 240, sharing="temporal", price=2.0)


def one_datacenter() -> Result:
    """2 stages in one data center: nothing crosses the WAN, and no boundary takes time."""
    result = make(["east", "east"], 1, 3, sharing="spatial", price=0.0)
    return replace(
        result, timeline=replace(result.timeline, transfers=_take(result.timeline.transfers, np.array([], int)))
    )


def interleaved() -> Result:
    """4 stages as 2 chunks on each of 2 slots in 2 data centers; each row stands for 2 pipelines."""
    flat = make(["east", "south", "east", "south"], 1, 2, sharing="temporal", price=0.0).timeline
    plan = make(["east", "south"], 2, 2, sharing="temporal", price=0.0).plan
    plan = plan.model_copy(update={"schedule": "interleaved", "interleave": 2})
    actions, moved = flat.actions, flat.transfers
    # Forward of chunk 0, all of chunk 1, backward of chunk 0, a second apart: a slot does one thing at a time.
    later = np.where(actions.stage >= 2, 1.0, np.where(actions.kind == Kind.F, 0.0, 2.0))
    actions = replace(actions, start_s=actions.start_s + later, end_s=actions.end_s + later)
    later = np.where(moved.stage >= 2, 1.0, np.where(moved.backward, 2.0, 0.0))
    moved = replace(
        moved,
        source=moved.source % 2,
        target=moved.target % 2,
        start_s=moved.start_s + later,
        end_s=moved.end_s + later,
        arrive_s=moved.arrive_s + later,
    )
    last = np.full(2, actions.end_s.max())
    return _result(
        plan,
        Timeline(
            num_stages=2,
            num_pipelines=1,
            copies=2,
            actions=_take(actions, np.argsort(actions.start_s, kind="stable")),
            transfers=_take(moved, np.argsort(moved.start_s, kind="stable")),
            reduce_start_s=last,
            update_start_s=last,
            update_end_s=last + UPDATE_S,
        ),
    )


def _take(columns, rows):
    return replace(columns, **{field.name: getattr(columns, field.name)[rows] for field in fields(columns)})


def make(
    dcs: list[str], pipelines: int, microbatches: int, *, sharing: Sharing, price: float, cells: int = 1
) -> Result:
    plan = _plan(dcs, pipelines, microbatches, sharing, price, cells)
    timeline = _Player(plan).play()
    return _result(plan, timeline)


def _plan(dcs: list[str], pipelines: int, microbatches: int, sharing: Sharing, price: float, cells: int) -> Plan:
    unique = list(dict.fromkeys(dcs))
    model = {"name": "gpt-a", "layers": 4 * len(dcs)}
    datacenters = [
        {"name": name, "nodes": dcs.count(name) * pipelines * cells, "gpu": "a100-80gb", "price_per_gpu_hour": price}
        for name in unique
    ]
    link = {"rtt": "40 ms", "pair_cap": "5 Gbit/s", "tcp_window": "1.465 MB", "price_per_gb": price / 100}
    return Plan.model_validate(
        {
            "cluster": {"name": "sample", "datacenters": datacenters, "wan": {"default": link}},
            "job": {"model": model, "microbatches": microbatches},
            "stages": [{"dc": name, "layers": 4} for name in dcs],
            "pipelines_per_cell": pipelines,
            "cells": cells,
            "schedule": "1f1b",
            "wan": {"connections": 18, "sharing": sharing},
        }
    )


class _Player:
    """Plays 1F1B with early recompute: one slot does one action at a time, one channel one transfer at a time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stages = len(plan.stages)
        self.actions: list[tuple[float, float, int, int, int, int]] = []
        self.transfers: list[tuple[float, float, float, int, int, int, int]] = []
        self.channel_free: dict[tuple[int, int, int], float] = {}
        self.arrived: dict[tuple[int, int, int, bool], float] = {}

    def _order(self, stage: int) -> list[tuple[Kind, int]]:
        count, warm = self.plan.num_microbatches, min(self.plan.num_microbatches, self.stages - stage)
        order = [(Kind.F, m) for m in range(warm)]
        for m in range(count):
            if stage < self.stages - 1:
                order.append((Kind.R, m))
            order.append((Kind.B, m))
            if warm + m < count:
                order.append((Kind.F, warm + m))
        return order

    def play(self) -> Timeline:
        rows = self.plan.pipelines_per_cell
        orders = {(p, s): self._order(s) for p in range(rows) for s in range(self.stages)}
        free = dict.fromkeys(orders, 0.0)
        for p in range(rows):
            for m in range(self.plan.num_microbatches):
                self.arrived[p, 0, m, False] = self.arrived[p, self.stages - 1, m, True] = 0.0
        position = dict.fromkeys(orders, 0)
        queue = [(0.0, 0, p, 0) for p in range(rows)]
        waiting: set[tuple[int, int]] = set(orders) - {(p, 0) for p in range(rows)}
        while queue:
            _, s, p, _ = heapq.heappop(queue)
            if position[p, s] == len(orders[p, s]):
                continue
            kind, m = orders[p, s][position[p, s]]
            ready = free[p, s] if kind == Kind.R else self.arrived.get((p, s, m, kind == Kind.B), None)
            if ready is None:
                waiting.add((p, s))
                continue
            start = max(ready, free[p, s])
            end = start + (BACKWARD_S if kind == Kind.B else FORWARD_S)
            self.actions.append((start, end, kind, s, m, p))
            free[p, s] = end
            position[p, s] += 1
            heapq.heappush(queue, (end, s, p, 0))
            target = s + 1 if kind == Kind.F else s - 1
            if kind != Kind.R and 0 <= target < self.stages:
                self.arrived[p, target, m, kind == Kind.B] = self._send(end, s, target, m, p)
                if (p, target) in waiting:
                    waiting.discard((p, target))
                    heapq.heappush(queue, (end, target, p, 1))
        return self._timeline(rows)

    def _send(self, ready: float, source: int, target: int, microbatch: int, pipeline: int) -> float:
        wan = self.plan.crosses_wan(source, target)
        pooled = wan and self.plan.wan.sharing == "temporal"
        channel = (source, target, 0 if pooled else pipeline)
        lasts = FABRIC_S if not wan else WAN_S / self.plan.pipelines_per_cell if pooled else WAN_S
        start = max(ready, self.channel_free.get(channel, 0.0))
        self.channel_free[channel] = start + lasts
        arrive = start + lasts + (LATENCY_S if wan else 0.0)
        self.transfers.append((start, start + lasts, arrive, source, target, microbatch, pipeline))
        return arrive

    def _timeline(self, rows: int) -> Timeline:
        actions, transfers = np.array(sorted(self.actions)), np.array(sorted(self.transfers))
        whole = actions[:, 2:].astype(np.int64)
        moved = transfers[:, 3:].astype(np.int64)
        last = np.array([actions[whole[:, 1] == s, 1].max() for s in range(self.stages)])
        return Timeline(
            num_stages=self.stages,
            num_pipelines=rows,
            copies=1,
            actions=Actions(
                kind=whole[:, 0],
                stage=whole[:, 1],
                microbatch=whole[:, 2],
                pipeline=whole[:, 3],
                start_s=actions[:, 0],
                end_s=actions[:, 1],
            ),
            transfers=Transfers(
                source=moved[:, 0],
                target=moved[:, 1],
                backward=moved[:, 1] < moved[:, 0],
                stage=moved[:, 0],
                microbatch=moved[:, 2],
                pipeline=moved[:, 3],
                start_s=transfers[:, 0],
                end_s=transfers[:, 1],
                arrive_s=transfers[:, 2],
            ),
            reduce_start_s=last,
            update_start_s=last + REDUCE_S,
            update_end_s=last + REDUCE_S + UPDATE_S,
        )


def _links(plan: Plan, timeline: Timeline) -> list[LinkUse]:
    moved, links = timeline.transfers, []
    directions = dict.fromkeys(zip(moved.source.tolist(), moved.target.tolist(), strict=True))
    for source, target in sorted(directions):
        if not plan.crosses_wan(source, target):
            continue
        mine = (moved.source == source) & (moved.target == target)
        size = float(mine.sum()) * BOUNDARY_BYTES * plan.cells
        busy = float((moved.end_s - moved.start_s)[mine].sum()) / timeline.step_time_s
        links.append(
            LinkUse(
                source=plan.stages[source].dc,
                target=plan.stages[target].dc,
                size_bytes=size,
                busy_fraction=min(1.0, busy),
                rate=625e6,
                connections=18,
                cost=size / 1e9 * (plan.cluster.link(plan.stages[source].dc, plan.stages[target].dc).price_per_gb or 0),
            )
        )
    return links


def _memory(stages: int) -> list[StageMemory]:
    def gib(number: float) -> float:
        return parse(f"{number} GiB", SIZE)

    return [
        StageMemory(
            static_bytes=gib(30 + stage % 3),
            activations_bytes=gib(min(40, 2.5 * (stages - stage))),
            workspace_bytes=gib(4),
            in_flight=stages - stage,
            limit_bytes=gib(80),
        )
        for stage in range(stages)
    ]


def _result(plan: Plan, timeline: Timeline) -> Result:
    step, slots = timeline.step_time_s, timeline.num_pipelines * timeline.num_stages
    by_kind = {kind: float(busy.sum()) / slots / step for kind, busy in timeline.busy_by_kind_s().items()}
    forward, recompute, backward = by_kind[Kind.F], by_kind[Kind.R], by_kind[Kind.B]
    optimizer, reduce = UPDATE_S / step, REDUCE_S / step
    idle = 1 - forward - recompute - backward - optimizer - reduce
    links = _links(plan, timeline)
    return Result(
        plan=plan,
        timeline=timeline,
        sharing=[
            plan.wan.sharing if plan.crosses_wan(stage, stage + 1) else None for stage in range(len(plan.stages) - 1)
        ],
        bound=Bound(total_s=step / 1.25, binding="compute of stage 0 plus fill and drain"),
        step_time_s=step,
        gpu_utilization=float(timeline.busy_s.sum()) / slots / step,
        mfu=0.231,
        tokens_per_s=plan.tokens_per_step / step,
        memory=_memory(len(plan.stages)),
        links=links,
        shares=TimeShare(
            forward=forward,
            recompute=recompute,
            backward=backward,
            optimizer=optimizer,
            all_reduce=reduce,
            wan=0.5 * idle,
            fabric=0.1 * idle,
            pipeline=0.4 * idle,
        ),
        gpu_cost=plan.num_gpus * step / 3600 * plan.cluster.datacenters[0].price_per_gpu_hour,
        egress_cost=sum(link.cost for link in links),
    )
