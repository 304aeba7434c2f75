"""Prefill in the bubbles: utilization, time to first token, what decisions cost, what training loses.

Four data centers at 40 ms, one stage of each pipeline in each; Llama 3.1 8B beside GPT-B-like stages with 3
microbatches and GPT-A-like ones with 6, which makes Atlas alone about 45% busy.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from geotrain.plan import Plan
from geotrain.prefill.settings import Settings
from geotrain.prefill.trace import Trace, generate
from geotrain.reproduction.finding import Finding, Source, Value, command, file_of, measured, name_of
from geotrain.reproduction.settings import FABRIC, SOURCE, WAN, stage_profile
from geotrain.simulation import Jitter
from geotrain.simulation.prefill.outcome import Study
from geotrain.simulation.prefill.scene import SATURATION, Scene, saturating_rps
from geotrain.simulation.prefill.study import study
from geotrain.simulation.prefill.weather import Weather
from geotrain.workload import MODELS

TRACE = "azure-conversation"
DATACENTERS = ("east", "south", "west", "north")
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Training whose bubbles are filled."""

    model: str
    forward_s: float
    boundary_bytes: int
    microbatches: int


GPT_A = Stages(model="gpt-a", forward_s=0.0135, boundary_bytes=4096 * 4096 * 2, microbatches=6)
GPT_B = Stages(model="gpt-b", forward_s=0.075, boundary_bytes=6144 * 8192 * 2, microbatches=3)
STAGES = {stages.model: stages for stages in (GPT_A, GPT_B)}


def plan(stages: Stages, *, per_dc: int = 1, pipelines: int = 4, cells: int = 1) -> Plan:
    """Atlas over the four data centers."""
    profile = {
        "stage": stage_profile(stages.forward_s),
        "boundary_bytes": stages.boundary_bytes,
        "gradient_bytes": 0,
        "optimizer_s": 0,
    }
    content = {
        "cluster": {
            "datacenters": [{"name": n, "nodes": 512, "gpu": "a100-80gb", "fabric": FABRIC} for n in DATACENTERS],
            "wan": {"default": WAN},
        },
        "job": {
            "model": {"name": stages.model, "layers": 4 * per_dc},
            "microbatches": stages.microbatches,
            "profile": profile,
        },
        "stages": [{"dc": dc, "layers": 1} for dc in DATACENTERS for _ in range(per_dc)],
        "pipelines_per_cell": pipelines,
        "cells": cells,
        "schedule": "atlas",
    }
    return Plan.parse(content, source=SOURCE)


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A plan, a load, and the command that plays them."""

    row: Mapping[str, Value]
    plan: Plan
    duration_s: float
    load: float | None = None
    """Of what the bubbles can take; None is saturating."""
    degree: int | None = None
    jitter: str | None = None
    """As the command takes it."""

    def play(self, *, timed: bool = False) -> tuple[Study, list[object]]:
        """What came of it, and the words of the command."""
        scene = Scene(
            plan=self.plan,
            models=(MODELS["llama-3.1-8b"],),
            settings=Settings(degree=self.degree),
            weather=Weather(jitter=None if self.jitter is None else Jitter.parse(self.jitter)),
        )
        if timed:
            scene = replace(scene, clock=time.thread_time)
        trace, rate = self._arrivals(scene)
        words: list[object] = ["prefill", "simulate", file_of(self._file), TRACE, "--rate", rate]
        words += ["--duration", f"{self.duration_s:g} s", "--only-ours"]
        words += [] if self.degree is None else ["--degree", self.degree]
        words += [] if self.jitter is None else ["--jitter", self.jitter]
        return study(scene, trace, rivals=False), words

    def source(self, words: Sequence[object], read: str) -> Source:
        """The command that prints one figure."""
        return Source(command=command(*words, read=read), files={self._file: self.plan})

    @property
    def _file(self) -> str:
        return f"{name_of(self.row)}.yaml"

    def _arrivals(self, scene: Scene) -> tuple[Trace, str]:
        """Requests made up like the published trace's, at a rate that the command can say exactly."""
        whole = generate(TRACE, seed=SEED)
        most_rps = saturating_rps(scene, whole)
        if self.load is None:
            return whole.at_rate(most_rps).repeated(self.duration_s), "max"
        rate = float(f"{self.load * most_rps / SATURATION:.4g}")
        return whole.at_rate(rate).repeated(self.duration_s), f"{rate}/s"

    def figures(self, wanted: Mapping[str, tuple[str, str]], seen: Study, words: Sequence[object]) -> Iterator[Finding]:
        """Figures by name: unit and where the command's answer has it."""
        values = _values(seen)
        for figure, (unit, read) in wanted.items():
            source = self.source(words, read)
            yield Finding(row=self.row, figure=figure, value=values[figure], unit=unit, sources=(source,), seed=SEED)


def _values(seen: Study) -> dict[str, float]:
    ours, slowdown = seen.ours, seen.ours.slowdown
    return {
        "utilization, training alone": ours.training_utilization,
        "utilization with prefill": ours.gpu_utilization,
        "TTFT p50": ours.ttft(0.5),
        "TTFT p99": ours.ttft(0.99),
        "TTFT p50 over dedicated GPUs": ours.ttft(0.5) / seen.dedicated.ttft(0.5),
        "TTFT p99 over dedicated GPUs": ours.ttft(0.99) / seen.dedicated.ttft(0.99),
        "SLO attainment": ours.slo_attainment,
        "training slowdown, mean": float(slowdown.mean()),
        "training slowdown, p99": float(np.quantile(slowdown, 0.99)),
    }


def utilization(*, models: Sequence[str], duration_s: float) -> Iterator[Finding]:
    """Without and with saturating prefill, training as planned."""
    for model in models:
        case = _Case(row={"stages": model}, plan=plan(STAGES[model]), duration_s=duration_s)
        wanted = {
            "utilization, training alone": ("%", ".gpu_utilization_before"),
            "utilization with prefill": ("%", ".gpu_utilization_after"),
            "training slowdown, mean": ("%", ".training_slowdown.mean"),
        }
        yield from case.figures(wanted, *case.play())


def first_token(*, models: Sequence[str], degrees: Sequence[int], duration_s: float, load: float) -> Iterator[Finding]:
    """By how many slots share the prefill of a prompt; eight pipelines, so that eight fit into a data center."""
    wanted = {
        "TTFT p50": ("s", ".ttft_s.p50"),
        "TTFT p99": ("s", ".ttft_s.p99"),
        "TTFT p50 over dedicated GPUs": ("x", ".ttft_s.p50 / .dedicated.ttft_s.p50"),
        "TTFT p99 over dedicated GPUs": ("x", ".ttft_s.p99 / .dedicated.ttft_s.p99"),
        "SLO attainment": ("%", ".slo_attainment"),
    }
    for model in models:
        for degree in degrees:
            row: dict[str, Value] = {"stages": model, "degree": degree}
            training = plan(STAGES[model], pipelines=8)
            case = _Case(row=row, plan=training, duration_s=duration_s, load=load, degree=degree)
            yield from case.figures(wanted, *case.play())


def slowdown(*, models: Sequence[str], jitters: Sequence[str], duration_s: float) -> Iterator[Finding]:
    """What saturating prefill costs training that does not go as planned."""
    wanted = {
        "training slowdown, mean": ("%", ".training_slowdown.mean"),
        "training slowdown, p99": ("%", ".training_slowdown.p99"),
        "utilization with prefill": ("%", ".gpu_utilization_after"),
    }
    for model in models:
        for jitter in jitters:
            row: dict[str, Value] = {"stages": model, "jitter": jitter}
            case = _Case(row=row, plan=plan(STAGES[model]), duration_s=duration_s, jitter=jitter)
            yield from case.figures(wanted, *case.play())


def decisions(*, cells: Sequence[int], repetitions: int, duration_s: float) -> Iterator[Finding]:
    """Time of a decision, by this machine's clock, over the number of slots."""
    for number in cells:
        training = plan(replace(GPT_B, microbatches=8), per_dc=2, pipelines=5, cells=number)
        case = _Case(row={"slots": 40 * number}, plan=training, duration_s=duration_s, load=1.0)
        plays = [case.play(timed=True) for _ in range(repetitions)]
        words = plays[0][1]
        for figure, read, of in (
            ("decision, mean", ".decision_us.mean", np.mean),
            ("decision, p99", ".decision_us.p99", lambda each: np.quantile(each, 0.99)),
        ):
            samples = tuple(float(of(seen.ours.decision_s)) * 1e6 for seen, _ in plays)
            source = case.source(words, read)
            yield measured(samples, row=case.row, figure=figure, unit="us", sources=(source,), seed=SEED)
