"""Prefill in the bubbles: the published operating point, jitter, first tokens, other ways of filling, the controller.

Four data centers at 40 ms, one stage of each pipeline in each, four pipelines; Llama 3.1 8B beside GPT-B-like stages
with 3 microbatches and GPT-A-like ones with 6: that makes Atlas alone about 45% busy. Traces come from the folder that
GEOTRAIN_TRACES names; those that are not there are made up.

    python -m benchmarks.prefill               all; several minutes, most of it `controller` and `rivals`
    python -m benchmarks.prefill ttft rivals   some of: controller, published, jitter, ttft, rivals
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.controller import Drive
from benchmarks.measurement import Measurement
from geotrain.prefill.settings import Settings
from geotrain.prefill.trace import Trace, find_trace
from geotrain.reproduction.prefill import GPT_A, GPT_B, Stages, plan
from geotrain.simulation import Jitter
from geotrain.simulation.prefill.outcome import Study
from geotrain.simulation.prefill.scene import SATURATION, Scene, saturating_rps
from geotrain.simulation.prefill.study import study
from geotrain.simulation.prefill.weather import Weather
from geotrain.workload import MODELS

CONVERSATION, CODE, MOONCAKE = "azure-conversation", "azure-code", "mooncake-conversation"
SLO_S = {CONVERSATION: 2.0, CODE: 2.0, MOONCAKE: 30.0}
JITTERS = {
    "2% of the step": Jitter.parse("step=2%"),
    "2% of every action and transfer": Jitter.parse("2%"),
}


@cache
def trace(name: str) -> Trace:
    """The real one, or one like it."""
    folder = os.environ.get("GEOTRAIN_TRACES")
    return find_trace(Path(folder) if folder else None, name)


def loaded(scene: Scene, name: str, load: float | None, duration_s: float) -> Trace:
    """The trace at that multiple of what the bubbles can take; None: a thousand requests a second."""
    most_rps = saturating_rps(scene, trace(name)) / SATURATION
    return trace(name).at_rate(1000 if load is None else load * most_rps).repeated(duration_s)


@cache
def played(
    stages: Stages,
    *,
    load: float = 1.5,
    duration_s: float = 120.0,
    name: str = CONVERSATION,
    jitter: Jitter | None = None,
    rivals: bool = False,
) -> Study:
    """One plan and one trace."""
    settings, weather = Settings(slo_s=SLO_S[name]), Weather(jitter=jitter)
    scene = Scene(plan=plan(stages), models=(MODELS["llama-3.1-8b"],), settings=settings, weather=weather)
    return study(scene, loaded(scene, name, load, duration_s), rivals=rivals)


def controller() -> Iterator[Measurement]:
    """A thousand slots: time per decision, and memory after ten times as many requests."""
    for name, target_us, loads in ((CONVERSATION, 100.0, (None, 0.5, 1.5)), (MOONCAKE, None, (0.5, 1.5))):
        for degree in (1, 4):
            for load in loads:
                where = many_slots(name, degree, cells=25)
                arrivals = loaded(where, name, load, 4.0 if name == CONVERSATION else 20.0)
                drives = [Drive(where) for _ in range(3)]
                for drive in drives:
                    drive.play(arrivals.requests)
                mean_s = min(drive.mean_s for drive in drives)
                p99_s = min(float(np.quantile(drive.decision_s, 0.99)) for drive in drives)
                words = f"{name}, {degree} slots each, {'1,000/s' if load is None else f'load {load:g}'}"
                yield Measurement(name=f"{words}: decision", value=mean_s * 1e6, unit="us", target=target_us)
                yield Measurement(name="  p99", value=p99_s * 1e3, unit="ms", target=1)
    for name in (CONVERSATION, MOONCAKE):
        where = many_slots(name, 1, cells=1)
        arrivals = loaded(where, name, 1.5, 1e5 / saturating_rps(where, trace(name)))
        drive = Drive(where)
        # It goes up and down with the queue, and as dictionaries grow and shrink: the most of several looks.
        looks = range(0, len(arrivals.requests), 5_000)
        held_bytes = list(_held_bytes(drive, arrivals, looks))
        early_bytes, late_bytes = max(held_bytes[: len(looks) // 2]), max(held_bytes[len(looks) // 2 :])
        yield Measurement(name=f"{name}: memory, most in the first half", value=early_bytes / 1e6, unit="MB")
        growth = late_bytes / early_bytes
        yield Measurement(name=f"  second half of {drive.arrived:,}, over that", value=growth, unit="x", target=1.1)


def _held_bytes(drive: Drive, arrivals: Trace, starts: range) -> Iterator[int]:
    """After each part of the arrivals."""
    for start in starts:
        drive.play(arrivals.requests[start : start + starts.step])
        yield drive.held_bytes


def many_slots(name: str, degree: int, *, cells: int) -> Scene:
    """Forty slots in each cell."""
    settings = Settings(degree=degree, slo_s=SLO_S[name])
    training = plan(replace(GPT_B, microbatches=8), per_dc=2, pipelines=5, cells=cells)
    return Scene(plan=training, models=(MODELS["llama-3.1-8b"],), settings=settings)


def published() -> Iterator[Measurement]:
    """Utilization without and with saturating prefill."""
    for stages, target in ((GPT_B, 0.94), (GPT_A, None)):
        ours = played(stages).ours
        yield Measurement(
            name=f"{stages.model}: Atlas alone, GPU utilization", value=ours.training_utilization, unit=""
        )
        filled = ours.gpu_utilization
        yield Measurement(name="  with prefill", value=filled, unit="", target=target, more_is_better=True)


def jitter() -> Iterator[Measurement]:
    """What prefill costs training that varies, and what that costs prefill."""
    for stages, duration_s in ((GPT_B, 240.0), (GPT_A, 120.0)):
        calm = played(stages).ours.gpu_utilization
        for words, luck in JITTERS.items():
            ours = played(stages, jitter=luck, duration_s=duration_s).ours
            slower, late = float(ours.slowdown.mean()), float(np.quantile(ours.slowdown, 0.99))
            name = f"{stages.model}, {words}: slowdown"
            yield Measurement(name=name, value=slower, unit="", target=0.005)
            yield Measurement(name=f"  p99 of {len(ours.slowdown)} steps", value=late, unit="", target=0.02)
            yield Measurement(name="  utilization lost", value=calm - ours.gpu_utilization, unit="", target=0.03)


def ttft() -> Iterator[Measurement]:
    """Time to first token at half load, against GPUs that do nothing else."""
    for stages in (GPT_B, GPT_A):
        seen = played(stages, load=0.5)
        for quantile, words, target in ((0.5, "p50", 1.1), (0.99, "p99", 1.5)):
            ours_s, theirs_s = seen.ours.ttft(quantile), seen.dedicated.ttft(quantile)
            name = f"{stages.model}: time to first token over dedicated, {words}"
            yield Measurement(name=name, value=ours_s / theirs_s, unit="x", target=target)
            yield Measurement(name="  itself", value=ours_s, unit="s")


def rivals() -> Iterator[Measurement]:
    """Goodput over that of other ways of filling."""
    over: dict[str, list[float]] = {"reactive": [], "fixed": [], "oracle": []}
    for stages in (GPT_B, GPT_A):
        for name, slo_s in SLO_S.items():
            for load in (0.5, 1.0, 1.5):
                seen = played(stages, load=load, duration_s=max(30.0, 5 * slo_s), name=name, rivals=True)
                for other, ratios in over.items():
                    ratios.append(seen.ours.goodput_rps / seen.baselines[other].goodput_rps)
                shown = ", ".join(f"{other} {ratios[-1]:.3f}" for other, ratios in over.items())
                print(f"{stages.model}, {name}, load {load:g}: goodput over {shown}", flush=True)
    for other in ("reactive", "fixed"):
        name, least = f"goodput over {other}, {len(over[other])} cases", min(over[other])
        yield Measurement(name=f"{name}, least", value=least, unit="x", target=1, more_is_better=True)
        yield Measurement(name="  median", value=median(over[other]), unit="x")
    best = max(over["oracle"])
    yield Measurement(name="goodput over the oracle, best", value=best, unit="x", target=0.95, more_is_better=True)
    yield Measurement(name="  median", value=median(over["oracle"]), unit="x")


PARTS = {part.__name__: part for part in (controller, published, jitter, ttft, rivals)}


def run(*names: str) -> Iterator[Measurement]:
    """All parts, or those named."""
    for name in names or PARTS:
        yield from PARTS[name]()


if __name__ == "__main__":
    for figure in run(*sys.argv[1:]):
        print(f"{figure.name:75} {figure.value:.4g} {figure.unit} {'' if figure.met else 'MISSED'}", flush=True)
