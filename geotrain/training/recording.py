"""Steps of a plan as a file, simulated or measured alike: `timeline.json`.

    {"geotrain_timeline": 1,                      the version of this format
     "origin": "measured",                        or "simulated"
     "plan_fingerprint": "0f3a...",               of the plan's content
     "plan": {...},                               as in a plan file, cluster and job inside
     "devices": {"east": ["cpu"]},                what computed in each data center, where that is known
     "pooled": [1, 2],                            boundaries at which a cell's pairs carry each transfer together
     "steps": [
       {"step": 7, "num_stages": 4, "num_pipelines": 3, "copies": 1,
        "actions": {"kind": ["F", ...], "stage": [0, ...], "microbatch": ..., "pipeline": ...,
                    "start_s": ..., "end_s": ...},
        "transfers": {"source": ..., "target": ..., "backward": ..., "stage": ..., "microbatch": ..., "pipeline": ...,
                      "start_s": ..., "end_s": ..., "arrive_s": ...},
        "reduce_start_s": [...], "update_start_s": [...], "update_end_s": [...]}]}

Columns, a step per line. What each means is said in timeline.py; times are seconds since the step began.
"""

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from geotrain.action import Kind
from geotrain.errors import InputError
from geotrain.files import Document, read_text, writing
from geotrain.plan import Plan, Sharing
from geotrain.simulation.play import Played
from geotrain.simulation.result import Result
from geotrain.timeline import Actions, Timeline, Transfers
from geotrain.training.columns import Clock, Count, Flag, Letter, Table, read_json

_MARK = '{"geotrain_timeline"'
_CLOSING = ("reduce_start_s", "update_start_s", "update_end_s")


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """One step, with what is needed to draw it."""

    number: int
    plan: Plan
    sharing: list[Sharing | None]
    """Per boundary of slot stages; None inside a data center."""
    timeline: Timeline


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Steps of one plan."""

    origin: Literal["simulated", "measured"]
    plan: Plan
    pooled: frozenset[int]
    """Boundaries of slot stages at which a cell's pairs carry each transfer together."""
    steps: list[tuple[int, Timeline]]
    devices: dict[str, list[str]] = field(default_factory=dict)
    """By data center, what computed: names of GPUs, `cpu`, or `emulated` for held times; empty if it is not known."""

    @classmethod
    def of(cls, played: Played, result: Result) -> Self:
        """A simulated step."""
        return cls(origin="simulated", plan=result.plan, pooled=played.wiring.pooled, steps=[(0, result.timeline)])

    @cached_property
    def steady(self) -> list[tuple[int, Timeline]]:
        """The steps that count: the first one warms up, unless it is the only one."""
        return self.steps[1:] or self.steps

    @property
    def step_time_s(self) -> float:
        """The median."""
        return float(np.median([timeline.step_time_s for _, timeline in self.steady]))

    @property
    def gpu_utilization(self) -> float:
        """Busy slot time over slots x step."""
        return float(np.mean([timeline.busy_s.mean() / timeline.step_time_s for _, timeline in self.steady]))

    @property
    def typical(self) -> RecordedStep:
        """The step that comes closest to the median."""
        number, timeline = min(self.steady, key=lambda step: abs(step[1].step_time_s - self.step_time_s))
        return RecordedStep(number=number, plan=self.plan, sharing=self.sharing, timeline=timeline)

    @property
    def sharing(self) -> list[Sharing | None]:
        """Per boundary of slot stages: how its transfers share the WAN; None inside a data center."""
        return [
            None if here.dc == there.dc else "temporal" if boundary in self.pooled else "spatial"
            for boundary, (here, there) in enumerate(pairwise(self.plan.stages))
        ]

    def save(self, path: Path) -> None:
        """Write the file as a whole or not at all."""
        head = {
            "geotrain_timeline": 1,
            "origin": self.origin,
            "plan_fingerprint": fingerprint(self.plan),
            "plan": self.plan.dump(),
            "devices": self.devices,
            "pooled": sorted(self.pooled),
        }
        with writing(path) as file:
            file.write(f'{json.dumps(head)[:-1]}, "steps": [')
            for index, (number, timeline) in enumerate(self.steps):
                file.write(f"{',' if index else ''}\n{json.dumps({'step': number} | _columns(timeline))}")
            file.write("]}\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check the file; InputError if anything about it is wrong."""
        file = _File.parse(read_json(read_text(path), source=path), source=path)
        plan = Plan.parse(file.plan, source=path)
        if file.plan_fingerprint != fingerprint(plan):
            raise InputError(
                f"{path}: plan_fingerprint is {file.plan_fingerprint!r}, but that of the plan in it is "
                f"{fingerprint(plan)!r}: one of them was changed"
            )
        steps = [(step.step, step.timeline()) for step in file.steps]
        for index, (_, timeline) in enumerate(steps):
            if wrong := problem(timeline, plan):
                raise InputError(f"{path}: steps[{index}]: {wrong}")
        return cls(origin=file.origin, plan=plan, pooled=frozenset(file.pooled), steps=steps, devices=file.devices)


def is_recording(path: Path) -> bool:
    """Whether the file begins like one; a plan does not."""
    return "".join(read_text(path)[:64].split()).startswith(_MARK)


def fingerprint(plan: Plan) -> str:
    """Equal for plans that say the same, wherever they come from."""
    content = {key: value for key, value in plan.dump().items() if key != "made_by"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _columns(timeline: Timeline) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for part in fields(timeline):
        value = getattr(timeline, part.name)
        if isinstance(value, Actions | Transfers):
            content[part.name] = {column.name: getattr(value, column.name).tolist() for column in fields(value)}
        else:
            content[part.name] = value.tolist() if isinstance(value, np.ndarray) else value
    content["actions"]["kind"] = [Kind(kind).name for kind in content["actions"]["kind"]]
    return content


class _Actions(Table):
    kind: list[Letter] = Field(min_length=1)
    stage: list[Count]
    microbatch: list[Count]
    pipeline: list[Count]
    start_s: list[Clock]
    end_s: list[Clock]


class _Transfers(Table):
    source: list[Count]
    target: list[Count]
    backward: list[Flag]
    stage: list[Count]
    microbatch: list[Count]
    pipeline: list[Count]
    start_s: list[Clock]
    end_s: list[Clock]
    arrive_s: list[Clock]


class _Step(Document):
    step: Count
    num_stages: Count
    num_pipelines: Count
    copies: Count
    actions: _Actions
    transfers: _Transfers
    reduce_start_s: list[Clock]
    update_start_s: list[Clock]
    update_end_s: list[Clock]

    def timeline(self) -> Timeline:
        closing = {name: _array(name, getattr(self, name)) for name in _CLOSING}
        return Timeline(
            num_stages=self.num_stages,
            num_pipelines=self.num_pipelines,
            copies=self.copies,
            actions=Actions(**_arrays(self.actions)),
            transfers=Transfers(**_arrays(self.transfers)),
            **closing,
        )


class _File(Document):
    version: Literal[1] = Field(alias="geotrain_timeline")
    origin: Literal["simulated", "measured"]
    plan_fingerprint: str
    plan: dict[str, Any]
    devices: dict[str, list[str]] = Field(default_factory=dict)
    pooled: list[Count]
    steps: list[_Step] = Field(min_length=1)


def _arrays(table: _Actions | _Transfers) -> dict[str, NDArray[Any]]:
    """The columns, ordered by start."""
    order = np.argsort(_array("start_s", table.start_s), kind="stable")
    return {name: _array(name, column)[order] for name, column in table}


def _array(name: str, column: list[Any]) -> NDArray[Any]:
    if name == "kind":
        column = [Kind[letter] for letter in column]
    return np.array(column, dtype=float if name.endswith("_s") else bool if name == "backward" else np.int64)


def problem(timeline: Timeline, plan: Plan) -> str | None:
    """What is wrong with a step that came from outside, if anything is."""
    slots, done, moved = len(plan.stages), timeline.actions, timeline.transfers
    closing = [getattr(timeline, name) for name in _CLOSING]
    if timeline.num_stages != slots or any(len(times) != slots for times in closing):
        return f"num_stages, and every list with an entry per stage, must be {slots}, as the plan has"
    if timeline.num_pipelines * timeline.copies not in (plan.pipelines_per_cell, plan.num_pipelines):
        return (
            f"num_pipelines x copies is {timeline.num_pipelines} x {timeline.copies} and must be "
            f"{plan.pipelines_per_cell}, a cell, or {plan.num_pipelines}, all of the plan's"
        )
    below = {"stage": slots * plan.interleave, "microbatch": plan.num_microbatches, "pipeline": timeline.num_pipelines}
    for name, table, limits in (
        ("actions", done, below),
        ("transfers", moved, below | {"source": slots, "target": slots}),
    ):
        for column, limit in limits.items():
            if (most := getattr(table, column).max(initial=0)) >= limit:
                return f"{name}.{column} has {most} and must be below {limit}"
    nothing = np.zeros(1)
    for name, first, then in (
        ("actions.start_s", nothing, done.start_s),
        ("actions.end_s", done.start_s, done.end_s),
        ("transfers.start_s", nothing, moved.start_s),
        ("transfers.end_s", moved.start_s, moved.end_s),
        ("transfers.arrive_s", moved.end_s, moved.arrive_s),
        *zip(_CLOSING, [nothing, *closing], closing, strict=False),
    ):
        if (short := (then - first).min(initial=0.0)) < 0:
            return f"{name} has a time that is {-short:g} s before the one it follows"
    return None
