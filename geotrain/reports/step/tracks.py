"""The rows of a picture of a step: one per slot, grouped by data center, and one per WAN channel.

Perfetto trace and HTML report draw the same tracks. Spans on one track never overlap.
"""

import heapq
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from geotrain.plan import Plan, Sharing
from geotrain.reports.words import datacenters
from geotrain.timeline import Floats, Ints, Timeline, Transfers
from geotrain.units import TIME

WAN = "WAN"


class Step(Protocol):
    """A step to draw: a simulation's Result is one, a measured step is one too."""

    @property
    def plan(self) -> Plan:
        """What was played."""

    @property
    def timeline(self) -> Timeline:
        """What happened."""

    @property
    def sharing(self) -> list[Sharing | None]:
        """Per boundary of slot stages; None inside a data center."""


@dataclass(frozen=True, kw_only=True)
class SlotTrack:
    """What one slot did."""

    datacenter: str
    pipeline: int
    stage: int
    rows: Ints
    """Its rows in the timeline's actions, by start."""

    @property
    def name(self) -> str:
        """pipeline 0 stage 2."""
        return f"pipeline {self.pipeline} stage {self.stage}"

    @property
    def short(self) -> str:
        """The name where room is scarce."""
        return f"p{self.pipeline} s{self.stage}"


@dataclass(frozen=True, kw_only=True)
class ChannelTrack:
    """What one WAN channel carried in one direction: a pair's, or that of a cell's pooled pairs."""

    source: str
    target: str
    name: str
    short: str
    rows: Ints
    """Its rows in the timeline's transfers, by start."""


def nanoseconds(seconds: Floats) -> Ints:
    """Times as whole nanoseconds; rounding keeps order, so spans that do not overlap still do not."""
    return np.rint(seconds / TIME.units["ns"]).astype(np.int64)


def slot_tracks(step: Step) -> list[SlotTrack]:
    """Data center by data center, pipeline by pipeline, stage by stage."""
    plan, timeline = step.plan, step.timeline
    rows = split_rows(timeline.slot_of_action, timeline.num_pipelines * timeline.num_stages)
    replicas = [dc.name for dc, pipelines in plan.groups for _ in range(pipelines)] if plan.replicas else []
    tracks = [
        SlotTrack(
            datacenter=replicas[pipeline] if replicas else plan.stages[stage].dc,
            pipeline=pipeline,
            stage=stage,
            rows=rows[pipeline * timeline.num_stages + stage],
        )
        for pipeline in range(timeline.num_pipelines)
        for stage in range(timeline.num_stages)
    ]
    order = list(dict.fromkeys(track.datacenter for track in tracks))
    return sorted(tracks, key=lambda track: order.index(track.datacenter))


def split_rows(group: Ints, num_groups: int) -> list[Ints]:
    """Row numbers of each group, in the order of the rows."""
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(1, num_groups))
    return np.split(order, edges)


def wan_rows(plan: Plan, timeline: Timeline) -> NDArray[np.bool_]:
    """Per transfer: it goes from one data center to another."""
    dcs = np.array([datacenters(plan).index(stage.dc) for stage in plan.stages], dtype=np.int64)
    crosses: NDArray[np.bool_] = dcs[timeline.transfers.source] != dcs[timeline.transfers.target]
    return crosses


def channel_tracks(step: Step) -> list[ChannelTrack]:
    """Boundary by boundary, activations before gradients, pipeline by pipeline where each has its own channel."""
    plan, moved = step.plan, step.timeline.transfers
    crossing = np.flatnonzero(wan_rows(plan, step.timeline))
    if not len(crossing):
        return []
    boundary = np.where(moved.backward, moved.target, moved.source)[crossing]
    pipelines, whose = step.timeline.num_pipelines, moved.pipeline[crossing]
    channel = np.where(_pooled(step)[boundary], pipelines + whose // plan.pipelines_per_cell, whose)
    keys = np.stack([boundary, moved.backward[crossing], moved.source[crossing], moved.target[crossing], channel], 1)
    unique, group = np.unique(keys, axis=0, return_inverse=True)
    tracks = []
    several = _several_boundaries(plan, unique)
    for (_, _, source, target, owner), rows in zip(
        unique.tolist(), split_rows(group.reshape(-1), len(unique)), strict=True
    ):
        direction = plan.stages[source].dc, plan.stages[target].dc
        lanes = _lanes(moved, crossing[rows])
        for lane, lane_rows in enumerate(lanes):
            name, short = f"{direction[0]} → {direction[1]}", f"{direction[0]}→{direction[1]}"
            if direction in several:
                name, short = f"{name}, stage {source} → {target}", f"s{source}→s{target}"
            if owner < pipelines:
                name, short = f"{name}, pipeline {owner}", f"{short} p{owner}"
            elif pipelines > plan.pipelines_per_cell:
                name, short = f"{name}, cell {owner - pipelines}", f"{short} c{owner - pipelines}"
            if len(lanes) > 1:
                name, short = f"{name} ({lane + 1})", f"{short} ({lane + 1})"
            tracks.append(
                ChannelTrack(source=direction[0], target=direction[1], name=name, short=short, rows=lane_rows)
            )
    return tracks


def _pooled(step: Step) -> NDArray[np.bool_]:
    """Per boundary, the one from the last slot stage round to the first included: pipelines share one channel."""
    modes = list(step.sharing)
    modes += [step.plan.wan.sharing] * (step.timeline.num_stages - len(modes))
    return np.array([mode == "temporal" for mode in modes])


def _several_boundaries(plan: Plan, keys: Ints) -> set[tuple[str, str]]:
    """Directions between two data centers that more than one pair of stages uses."""
    pairs = {(source, target) for _, _, source, target, _ in keys.tolist()}
    names = [(plan.stages[source].dc, plan.stages[target].dc) for source, target in pairs]
    return {name for name in names if names.count(name) > 1}


def _lanes(moved: Transfers, rows: Ints) -> list[Ints]:
    """One lane, or as many as it takes where a channel carries several transfers at once."""
    start, end = nanoseconds(moved.start_s[rows]), nanoseconds(moved.end_s[rows])
    if len(rows) < 2 or bool((start[1:] >= end[:-1]).all()):
        return [rows]
    lane_of = np.zeros(len(rows), dtype=np.int64)
    free: list[tuple[int, int]] = []
    for index, begin in enumerate(start.tolist()):
        lane = heapq.heappop(free)[1] if free and free[0][0] <= begin else len(free)
        heapq.heappush(free, (int(end[index]), lane))
        lane_of[index] = lane
    return [rows[lane_of == lane] for lane in range(len(free))]
