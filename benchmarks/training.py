"""A real run against the simulator, and what the executor costs.

Twelve processes play twelve GPUs in three data centers at 40 ms: GPT-A's proportions (a transfer over one pair takes
about four forwards), with times stretched and bytes shrunk until two cores can carry them. Compute is emulated, every
byte is real. Needs root or user namespaces; says so and leaves that part out otherwise.

The second setting is the published one where a connection's window is a seventeenth of rate x round trip, so that most
of the gain is there. At 160 ms two cores can carry it; at 40 ms, with everything four times as fast, they cannot.

    python -m benchmarks.training              all; about twenty minutes
    python -m benchmarks.training overhead     the executor alone
    python -m benchmarks.training seventeen    the second setting alone
"""

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measurement import Measurement
from geotrain import simulation
from geotrain.action import Kind
from geotrain.errors import RunError
from geotrain.model import Config, Part, loss
from geotrain.plan import Plan
from geotrain.reproduction.testbed import step_times_s
from geotrain.seating import Seating
from geotrain.testbed import Testbed
from geotrain.training.compute import TorchCompute
from geotrain.training.executor import Executor
from geotrain.training.launch import needed_testbed
from geotrain.training.recorder import Recorder
from geotrain.training.script import Script
from geotrain.workload import Model

CONTENT: dict[str, Any] = {
    "cluster": {
        "name": "scaled",
        "datacenters": [
            {
                "name": name,
                "nodes": 4,
                "gpus_per_node": 1,
                "gpu": "a100-80gb",
                "fabric": {"rate": "4 Gbit/s", "latency": "20 us"},
            }
            for name in ("east", "south", "west")
        ],
        "wan": {"default": {"rtt": "40 ms", "pair_cap": "24 Mbit/s", "tcp_window": "64 kB"}},
    },
    "job": {
        "model": {"layers": 6, "hidden": 512, "heads": 8, "ffn": 1376, "vocab": 1000, "activation": "swiglu"},
        "sequence": 512,
        "microbatches": 6,
        "precision": "fp32",
        "recompute": True,
        "profile": {
            "stage": {"forward_s": 0.15, "backward_s": 0.3, "recompute_s": 0.15, "weight_grad_s": 0.15},
            "boundary_bytes": 2_000_000,
            "gradient_bytes": 0,
            "optimizer_s": 0,
        },
    },
    "stages": [{"dc": dc, "layers": 1} for dc in ("east", "east", "south", "south", "west", "west")],
    "pipelines_per_cell": 2,
}
_SITES = {"east": 3, "south": 6, "west": 3}
SEVENTEEN: dict[str, Any] = {
    "cluster": {
        "name": "seventeen",
        "datacenters": [
            {
                "name": name,
                "nodes": nodes,
                "gpus_per_node": 1,
                "gpu": "a100-80gb",
                "fabric": {"rate": "4 Gbit/s", "latency": "20 us"},
            }
            for name, nodes in _SITES.items()
        ],
        "wan": {"default": {"rtt": "160 ms", "pair_cap": "30 Mbit/s", "tcp_window": "35.2 kB"}},
    },
    "job": {
        "model": {"layers": 4, "hidden": 512, "heads": 8, "ffn": 1376, "vocab": 1000, "activation": "swiglu"},
        "sequence": 512,
        "microbatches": 4,
        "precision": "fp32",
        "recompute": True,
        "profile": {
            "stage": {"forward_s": 0.2, "backward_s": 0.4, "recompute_s": 0.2, "weight_grad_s": 0.2},
            "boundary_bytes": 2_500_000,
            "gradient_bytes": 0,
            "optimizer_s": 0,
        },
    },
    "stages": [{"dc": dc, "layers": 1} for dc in ("east", "south", "south", "west")],
    "pipelines_per_cell": 3,
}
MANY = {"gpipe": "spatial", "1f1b": "spatial", "varuna": "spatial", "atlas": "temporal", "auto": "temporal"}
ONE = ("gpipe", "1f1b", "varuna")
LIMIT = 0.05
LEAST_GAIN, MOST_OVER = 15, 1.10
OVERHEAD = 0.02


def run() -> Iterator[Measurement]:
    """The executor's cost, then the runs."""
    yield from overhead()
    try:
        yield from _runs()
        yield from seventeen()
    except RunError as error:
        print(f"training: not measured: {error}")


def _plan(schedule: str, connections: int | str, sharing: str, setting: dict[str, Any] = CONTENT) -> Plan:
    content = setting | {"schedule": schedule, "wan": {"connections": connections, "sharing": sharing}}
    return Plan.parse(content, source=Path("plan.yaml"))


def _runs() -> Iterator[Measurement]:
    slow: dict[str, float] = {}
    with needed_testbed(Seating(_plan("gpipe", 1, "spatial"))) as bed:
        for schedule in ONE:
            plan = _plan(schedule, 1, "spatial")
            slow[schedule] = _measured_s(plan, bed, steps=2)
            yield from _against(plan, slow[schedule], f"{schedule}, one connection")
        for schedule, sharing in MANY.items():
            plan = _plan(schedule, "auto", sharing)
            took_s = _measured_s(plan, bed, steps=6)
            yield from _against(plan, took_s, f"{schedule}, many, {sharing}", limit=LIMIT)
            if schedule not in ("atlas", "auto"):
                continue
            for other, other_s in slow.items():
                predicted = _predicted_s(_plan(other, 1, "spatial")) / _predicted_s(plan)
                name = f"  {schedule} against {other} on one connection"
                yield Measurement(name=f"{name}, measured", value=other_s / took_s, unit="x")
                yield Measurement(name=f"{name}, predicted", value=predicted, unit="x")


def seventeen() -> Iterator[Measurement]:
    """Atlas and `auto` over many connections against GPipe over one."""
    slow = _plan("gpipe", 1, "spatial", SEVENTEEN)
    with needed_testbed(Seating(slow)) as bed:
        slow_s = _measured_s(slow, bed, steps=2)
        yield from _against(slow, slow_s, "gpipe, one connection, 17 would fill a pair")
        for schedule in ("atlas", "auto"):
            plan = _plan(schedule, "auto", "temporal", SEVENTEEN)
            took_s, predicted_s = _measured_s(plan, bed, steps=8), _predicted_s(plan)
            over, gain = took_s / predicted_s, slow_s / took_s
            yield Measurement(name=f"train {schedule}, many, there: step, measured", value=took_s, unit="s")
            yield Measurement(name="  measured over simulated", value=over, unit="x", target=MOST_OVER)
            yield Measurement(
                name="  against gpipe, measured", value=gain, unit="x", target=LEAST_GAIN, more_is_better=True
            )
            yield Measurement(name="  against gpipe, predicted", value=_predicted_s(slow) / predicted_s, unit="x")


def _against(plan: Plan, took_s: float, words: str, *, limit: float | None = None) -> Iterator[Measurement]:
    predicted_s = _predicted_s(plan)
    yield Measurement(name=f"train {words}: step, measured", value=took_s, unit="s")
    yield Measurement(name="  measured over simulated", value=took_s / predicted_s, unit="x")
    yield Measurement(name="  its distance from 1", value=abs(took_s / predicted_s - 1), unit="", target=limit)


def _predicted_s(plan: Plan) -> float:
    return simulation.rehearse(*simulation.run(plan))[1].step_time_s


def _measured_s(plan: Plan, bed: Testbed, *, steps: int) -> float:
    return statistics.median(step_times_s(plan, bed, steps=steps))


class _NoPost:
    """A slot that is the whole pipeline has no neighbours."""

    def send(self, step: int, backward: bool, stage: int, microbatch: int, parcel: torch.Tensor) -> None:
        raise AssertionError

    def has(self, step: int, backward: bool, stage: int, microbatch: int) -> bool:
        raise AssertionError

    def notice(self, step: int, backward: bool, stage: int, microbatch: int, *, wait: bool = True) -> float | None:
        raise AssertionError

    def receive(self, step: int, backward: bool, stage: int, microbatch: int) -> torch.Tensor:
        raise AssertionError


def overhead() -> Iterator[Measurement]:
    """The executor with its recorder against a bare loop over the same model and microbatches, turn about."""
    torch.set_num_threads(1)
    model = Model(layers=4, hidden=128, heads=4, ffn=344, vocab=500, activation="swiglu")
    part = Part(Config.of(model, sequence=64))
    part.initialize(0)
    microbatches = 16
    noise = np.random.default_rng(0)
    tokens = noise.integers(0, 500, (microbatches, 2, 65))

    def batch(step: int, microbatch: int) -> tuple[np.ndarray, np.ndarray]:
        return tokens[microbatch, :, :-1].copy(), tokens[microbatch, :, 1:].copy()

    job = {"model": model.model_dump(), "sequence": 64, "microbatch": 2, "microbatches": microbatches}
    content = CONTENT | {
        "job": job | {"precision": "fp32", "recompute": False},
        "stages": [{"dc": "east", "layers": 4}],
        "pipelines_per_cell": 1,
        "schedule": "1f1b",
    }
    plan = Plan.parse(content, source=Path("plan.yaml"))
    script, seat = Script.of(plan), Seating(plan).seats[0]
    compute = TorchCompute(
        {0: part},
        batch,
        tokens_per_step=plan.tokens_per_step,
        device=torch.device("cpu"),
        parcel=torch.float32,
        precision=torch.float32,
    )
    recorder = Recorder(Path("unused"), seat, plan=plan, pooled=(), clock_offset_s=0.0, steps=range(0))
    executor = Executor(script.cues(0, 0), num_model_stages=1, compute=compute, post=_NoPost(), log=recorder)

    def bare() -> None:
        part.zero_grad(set_to_none=True)
        for microbatch in range(microbatches):
            inputs, targets = map(torch.from_numpy, batch(0, microbatch))
            (loss(part(inputs), targets) / plan.tokens_per_step).backward()

    def played(step: int) -> None:
        compute.begin(step)
        executor.step(step)
        now_s = time.monotonic()
        recorder.step(step, begin_s=now_s, reduce_start_s=now_s, update_start_s=now_s, update_end_s=now_s)

    ratios = []
    for step in range(60):
        start_s = time.perf_counter()
        bare()
        middle_s = time.perf_counter()
        played(step)
        ratios.append((time.perf_counter() - middle_s) / (middle_s - start_s))
    yield Measurement(
        name="executor and recorder over a bare loop, extra share of a step",
        value=statistics.median(ratios[10:]) - 1,
        unit="",
        target=OVERHEAD,
    )
    actions = sum(1 for cue in script.cues(0, 0) if cue.action.kind in (Kind.F, Kind.B))
    yield Measurement(name="  time of an action there", value=(middle_s - start_s) / actions * 1e3, unit="ms")


if __name__ == "__main__":
    parts = {"overhead": overhead, "seventeen": seventeen}
    for figure in parts[sys.argv[1]]() if sys.argv[1:] else run():
        print(f"{figure.name:75} {figure.value:.4g} {figure.unit} {'' if figure.met else 'MISSED'}", flush=True)
