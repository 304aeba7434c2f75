"""Fidelity: the emulated WAN and real processes against the simulator. Every byte is real, compute is emulated.

Needs root or user namespaces; a RunError says so otherwise.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from geotrain import simulation
from geotrain.cluster import Cluster
from geotrain.errors import RunError
from geotrain.plan import Plan, ScheduleName
from geotrain.reproduction.finding import Finding, Source, Value, command, file_of, measured, name_of
from geotrain.reproduction.settings import CONNECTIONS, SOURCE, way
from geotrain.seating import Seating
from geotrain.testbed import Testbed
from geotrain.training.launch import Launch, Namespaces, Run, needed_testbed
from geotrain.training.measured import gather
from geotrain.units import RATE, parse
from geotrain.wan.bench import Benchmark

_MEGABIT = parse("1 Mbit/s", RATE)
_DCS = ("east", "south", "west")


def transfers(
    *, rtts_ms: Sequence[float], links: Mapping[str, Mapping[str, Any]], repetitions: int
) -> Iterator[Finding]:
    """Transfers over the emulated WAN, one at a time, on one connection and on many, over round trips.

    `links` are pair caps, each with a `tcp_window` and the megabytes of a transfer, `size_mb`.
    """
    for cap, link in links.items():
        for rtt_ms in rtts_ms:
            wan = {"rtt": rtt_ms / 1e3, "pair_cap": cap, "tcp_window": link["tcp_window"]}
            sites = [{"name": name, "nodes": 1, "gpu": "a100-80gb"} for name in _DCS[:2]]
            cluster = Cluster.parse({"datacenters": sites, "wan": {"default": wan}}, source=SOURCE)
            yield from _transfers({"cap": cap, "rtt_ms": rtt_ms}, cluster, link["size_mb"], repetitions)


def _transfers(row: dict[str, Value], cluster: Cluster, size_mb: float, repetitions: int) -> Iterator[Finding]:
    size_bytes = round(size_mb * 1e6)
    bench = Benchmark(cluster, *_DCS[:2], size_bytes=size_bytes, count=repetitions, pairs=1, tell=lambda _: None)
    file = f"{name_of(row)}.yaml"
    options = ("--between", "east,south", "--size", f"{size_mb:g} MB", "--count", repetitions)
    with bench.testbed() as bed:
        for number, (words, connections) in enumerate(CONNECTIONS.items()):
            seen = bench.own(bed, words, connections)
            said = command("wan", "bench", file_of(file), *options, read=f".rows[{number}]")
            known: dict[str, Any] = {
                "row": row | {"connections": words},
                "sources": (Source(command=said, files={file: cluster}),),
            }
            rates = tuple(size_bytes / time_s / _MEGABIT for time_s in seen.times_s)
            over = tuple(time_s / seen.predicted_s for time_s in seen.times_s)
            yield measured(rates, figure="rate", unit="Mbit/s", **known)
            yield measured(over, figure="measured over simulated", unit="x", **known)


def scaled_plan(schedule: ScheduleName, rtt_ms: float, *, microbatches: int, forward_s: float) -> Plan:
    """GPT-A's proportions, with times stretched and bytes shrunk until two cores can play six nodes and the WAN."""
    fabric = {"rate": "4 Gbit/s", "latency": "20 us"}
    chunks = 2 if schedule == "interleaved" else 1
    content = {
        "cluster": {
            "datacenters": [{"name": n, "nodes": 2, "gpu": "a100-80gb", "fabric": fabric} for n in _DCS],
            "wan": {"default": {"rtt": rtt_ms / 1e3, "pair_cap": "24 Mbit/s", "tcp_window": "64 kB"}},
        },
        "job": {
            "model": {
                "layers": 3 * chunks,
                "hidden": 512,
                "heads": 8,
                "ffn": 1376,
                "vocab": 1000,
                "activation": "swiglu",
            },
            "sequence": 512,
            "microbatches": microbatches,
            "precision": "fp32",
            "recompute": True,
            "profile": {
                "stage": {
                    "forward_s": forward_s,
                    "backward_s": 2 * forward_s,
                    "recompute_s": forward_s,
                    "weight_grad_s": forward_s,
                },
                "boundary_bytes": 1_000_000,
                "gradient_bytes": 0,
                "optimizer_s": 0,
            },
        },
        "stages": [{"dc": dc, "layers": chunks} for dc in _DCS],
        "pipelines_per_cell": 2,
        "interleave": chunks,
        "schedule": schedule,
        "wan": {name: value for name, value in way(schedule).items() if name != "schedule"},
    }
    return Plan.parse(content, source=SOURCE)


def steps(
    *,
    schedules: Sequence[ScheduleName],
    rtts_ms: Sequence[float],
    repetitions: int,
    microbatches: int,
    forward_s: float,
) -> Iterator[Finding]:
    """Steps of real runs over the emulated WAN against the simulated step, by schedule and round trip.

    The repetitions are steps of one run.
    """
    for rtt_ms in rtts_ms:
        plans = {name: scaled_plan(name, rtt_ms, microbatches=microbatches, forward_s=forward_s) for name in schedules}
        with needed_testbed(Seating(plans[schedules[0]])) as bed:
            for name, plan in plans.items():
                predicted_s = simulation.rehearse(*simulation.run(plan))[1].step_time_s
                times_s = step_times_s(plan, bed, steps=repetitions + 1)
                row: dict[str, Value] = {"schedule": name, "rtt_ms": rtt_ms}
                file = f"{name_of(row)}.yaml"
                options = f"--on testbed --out RUN --max-restarts 0 -- --compute emulated --steps {repetitions + 1}"
                launch = f"geotrain launch {file_of(file)} {options}"
                sources = (
                    Source(command=f"{launch} && geotrain compare-runs {file_of(file)} RUN --json", files={file: plan}),
                )
                over = tuple(time_s / predicted_s for time_s in times_s)
                yield Finding(row=row, figure="simulated step", value=predicted_s, unit="s", sources=sources)
                yield measured(tuple(times_s), row=row, figure="measured step", unit="s", sources=sources)
                yield measured(over, row=row, figure="measured over simulated", unit="x", sources=sources)
                error = tuple(abs(ratio - 1) for ratio in over)
                yield measured(error, row=row, figure="error", unit="%", sources=sources)


def step_times_s(plan: Plan, bed: Testbed, *, steps: int) -> list[float]:
    """Of every step but the first, which warms up."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "plan.yaml"
        file.write_text(yaml.safe_dump(plan.dump()))
        seating = Seating(plan)
        launch = Launch(
            plan_file=file,
            seating=seating,
            out=Path(directory) / "run",
            max_restarts=0,
            options=("--compute", "emulated", "--steps", str(steps)),
        )
        with Run(launch, Namespaces(seating, bed)) as started:
            started.wait(deadline_s=600)
        return [timeline.step_time_s for _, timeline in gather(launch.out).steady]


def live_prefill(*, repetitions: int, seconds: int) -> Iterator[Finding]:
    """Prefill in the bubbles of a real run, beside the simulation of the same plan and requests."""
    words = ("demo", "live", "--seconds", str(seconds))
    answers = [_live(words) for _ in range(repetitions)]
    for figure, unit, path in (
        ("utilization with prefill", "%", ("gpu_utilization_after",)),
        ("TTFT p50", "s", ("ttft_s", "p50")),
    ):
        for side in ("simulated", "measured"):
            samples = tuple(_at(answer, side, *path) for answer in answers)
            source = Source(command=command(*words, read="." + ".".join((side, *path))))
            yield measured(samples, row={"prefill": side}, figure=figure, unit=unit, sources=(source,))
    ratios = tuple(
        _at(answer, "measured", "gpu_utilization_after") / _at(answer, "simulated", "gpu_utilization_after")
        for answer in answers
    )
    read = ".measured.gpu_utilization_after / .simulated.gpu_utilization_after"
    source = Source(command=command(*words, read=read))
    yield measured(ratios, row={}, figure="utilization, measured over simulated", unit="x", sources=(source,))


def _live(words: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        command_line = [sys.executable, "-m", "geotrain", *words, "--out", out, "--json"]
        done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"geotrain demo live failed: {(done.stderr.splitlines() or ['without a word'])[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _at(answer: Any, *path: str) -> float:
    for name in path:
        answer = answer[name]
    if answer is None:
        raise RunError(f"geotrain demo live found no {' '.join(path)}: the machine may be too busy")
    return float(answer)
