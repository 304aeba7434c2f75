"""Schedules against each other on GPT-A's proportions: over round trips, pipelines, microbatches, C and memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from geotrain.errors import InputError
from geotrain.plan import Plan, ScheduleName
from geotrain.reproduction.finding import Finding, Source, Value, command, file_of, name_of
from geotrain.reproduction.settings import Connections, gpt_a, way
from geotrain.simulation import Result, simulate

OURS: tuple[ScheduleName, ...] = ("atlas", "auto")
SEED = 0
"""Of the search of `auto`, which changes single actions at random."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A simulated step, and where its figures can be had again."""

    row: Mapping[str, Value]
    plan: Plan
    result: Result

    @classmethod
    def of(cls, plan: Plan, **row: Value) -> "Step":
        """Play it."""
        return cls(row=row, plan=plan, result=simulate(plan))

    def source(self, read: str) -> Source:
        """The command that prints one figure of the step."""
        file = f"{name_of(self.row)}.yaml"
        return Source(command=command("simulate", file_of(file), read=read), files={file: self.plan})

    def found(self, figure: str, value: float, unit: str, read: str) -> Finding:
        """One figure of the step."""
        return Finding(
            row=self.row, figure=figure, value=value, unit=unit, sources=(self.source(read),), seed=self._seed
        )

    def figures(self) -> Iterator[Finding]:
        """What every step is told by."""
        result = self.result
        yield self.found("step time", result.step_time_s, "s", ".step_time_s")
        yield self.found("GPU utilization", result.gpu_utilization, "%", ".gpu_utilization")
        yield self.found("step over bound", result.step_over_bound, "x", ".step_over_bound")

    def speedup(self, other: "Step", figure: str) -> Finding:
        """How many times as fast as the other."""
        return Finding(
            row=other.row,
            figure=figure,
            value=other.result.step_time_s / self.result.step_time_s,
            unit="x",
            sources=(other.source(".step_time_s"), self.source(".step_time_s")),
            seed=self._seed,
        )

    @property
    def _seed(self) -> int | None:
        return SEED if self.plan.schedule == "auto" else None


def schedules(
    *,
    vary: str,
    values: Sequence[Any],
    baselines: Sequence[ScheduleName],
    connections: Connections = "auto",
    fixed: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """Atlas and auto on many connections against the others on `connections`, over one thing varied.

    A schedule that does not fit at a setting has no figures there.
    """
    for value in values:
        setting: dict[str, Any] = {**(fixed or {}), vary: value}
        others = [_step(name, connections, vary, value, setting) for name in baselines]
        ours = {name: _step(name, "auto", vary, value, setting) for name in OURS}
        for step in [*others, *ours.values()]:
            if step is not None:
                yield from step.figures()
        for other in others:
            for name, mine in ours.items():
                if other is not None and mine is not None:
                    yield mine.speedup(other, f"speed-up of {name}")
        if ours["auto"] is not None and ours["atlas"] is not None:
            yield ours["auto"].speedup(ours["atlas"], "speed-up of auto")


def _step(
    schedule: ScheduleName, connections: Connections, vary: str, value: Value, setting: Mapping[str, Any]
) -> Step | None:
    plan = gpt_a(**{**way(schedule, connections), **setting})
    try:
        return Step.of(plan, **{"schedule": schedule, vary: value})
    except InputError:
        return None


def ablation(*, settings: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """From Varuna on one connection to auto, one idea after the other; then auto without each of them.

    What the ideas of the search bring is told over many settings by `grid`.
    """
    for name, setting in settings.items():
        ladder = [
            ("Varuna, one connection", way("varuna", 1)),
            ("+ many connections", way("varuna")),
            ("+ pooled bandwidth (Atlas)", way("atlas")),
            ("+ searched schedule (auto)", way("auto")),
            ("auto without many connections", way("auto", 1)),
            ("auto without pooled bandwidth", way("auto") | {"sharing": "spatial"}),
        ]
        steps = [Step.of(gpt_a(**{**choice, **setting}), setting=name, idea=idea) for idea, choice in ladder]
        for step in steps:
            yield step.found("step time", step.result.step_time_s, "s", ".step_time_s")
        for before, after in pairwise(steps[:4]):
            yield replace(after.speedup(before, "gain of the idea"), row=after.row)
        for without in steps[4:]:
            yield steps[3].speedup(without, "loss without it")
