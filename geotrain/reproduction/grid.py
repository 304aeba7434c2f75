"""How good `auto` is over many settings, against every published schedule and against the lower bound.

Two pipelines per cell; stages are equal, with no recompute, so memory limits bite; every schedule opens as many
connections as help and pools the cell's WAN bandwidth where that makes it faster.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from statistics import median
from typing import Any

from geotrain.errors import InputError
from geotrain.plan import Plan, ScheduleName, Sharing
from geotrain.reproduction.finding import Finding, Source, Value
from geotrain.reproduction.schedules import Step
from geotrain.reproduction.settings import SOURCE

Setting = Mapping[str, Any]

VALUES: dict[str, Sequence[Any]] = {
    "stages": (4, 8, 16, 32, 60),
    "microbatches": (4, 8, 16, 32, 64, 128, 256),
    "c": (0.5, 1, 2, 4, 8),
    "hops": (1, 2, 3, 4),
    "rtt_ms": (5, 10, 20, 40, 70, 100),
    "memory": ("P", "2P", "all"),
}
OTHERS: tuple[ScheduleName, ...] = ("atlas", "zero-bubble", "zero-bubble-2p", "varuna", "1f1b", "gpipe")
"""All named schedules but `interleaved`, which needs stages of several layers."""
SHARINGS: tuple[Sharing, ...] = ("spatial", "temporal")
"""Each pipeline with its own pair, as published but for Atlas; pooled, as by Atlas."""
_STEPS = (0.8566748838545029, 0.7338918566271260, 0.6287067210378087, 0.5385972572236101, 0.4614019, 0.3952704)
_FORWARD_S = 12.5e-3
_ACTIVATION_BYTES = 1e9
_KEPT_FOR_W = 32 / 34
_TRANSFER_BYTES = 32e6
_A_LITTLE = 1.001
"""A gain that counts as help."""
_WHOLE = (Source(command="geotrain reproduce --only auto --json"),)


def settings() -> Iterator[Setting]:
    """Each value of each row as often as any other, rows against each other without a pattern (additive recurrence)."""
    seen = set()
    for number in count():
        at = {
            name: values[int((0.5 + number * step) % 1 * len(values))]
            for (name, values), step in zip(VALUES.items(), _STEPS, strict=True)
        }
        at["hops"] = min(at["hops"], at["stages"] - 1)
        if tuple(at.values()) not in seen:
            seen.add(tuple(at.values()))
            yield at


def plan_of(setting: Setting, schedule: ScheduleName, sharing: Sharing = "temporal") -> Plan:
    """The plan of one setting."""
    stages, hops, microbatches = setting["stages"], setting["hops"], setting["microbatches"]
    room = {"P": stages, "2P": 2 * stages, "all": 10 * microbatches + 10 * stages}[setting["memory"]]
    gpu = {
        "name": "grid", "fp16": 1e15, "bf16": 1e15, "fp32": 1e15,
        "memory": (room + 0.5) * _ACTIVATION_BYTES, "memory_bandwidth": 1e12,
    }  # fmt: skip
    place = [stage * (hops + 1) // stages for stage in range(stages)]
    pair = _TRANSFER_BYTES / (setting["c"] * _FORWARD_S)
    stage = {
        "forward_s": _FORWARD_S, "backward_s": 2 * _FORWARD_S, "weight_grad_s": _FORWARD_S,
        "static_bytes": 0, "workspace_bytes": 0,
        "activation_bytes": _ACTIVATION_BYTES, "weight_grad_bytes": _KEPT_FOR_W * _ACTIVATION_BYTES,
    }  # fmt: skip
    content = {
        "cluster": {
            "datacenters": [
                {"name": f"dc{n}", "nodes": 2 * stages, "gpu": gpu, "memory_reserve": 0} for n in range(hops + 1)
            ],
            "wan": {"default": {"rtt": setting["rtt_ms"] * 1e-3, "pair_cap": pair}},
        },
        "job": {
            "model": {"layers": stages, "hidden": 64, "heads": 2, "vocab": 100},
            "sequence": 16,
            "microbatches": microbatches,
            "recompute": "none",
            "profile": {"stage": stage, "boundary_bytes": _TRANSFER_BYTES, "gradient_bytes": 0, "optimizer_s": 0},
        },
        "stages": [{"dc": f"dc{n}", "layers": 1} for n in place],
        "pipelines_per_cell": 2,
        "schedule": schedule,
        "wan": {"sharing": sharing},
    }
    return Plan.parse(content, source=SOURCE)


def grid(*, number: int) -> Iterator[Finding]:
    """`auto` at so many settings: over its bound, how many times as fast as each schedule that fits, and by which idea.

    The first idea is measured against Atlas, each other one against those before it. One that was not tried, because
    they had left nothing to gain, has gained nothing.
    """
    speedups: dict[Value, list[float]] = {}
    gains: dict[Value, list[float]] = {}
    for setting in islice(settings(), number):
        auto = Step.of(plan_of(setting, "auto"), **setting, schedule="auto")
        yield auto.found("step over bound", auto.result.step_over_bound, "x", ".step_over_bound")
        others: dict[Value, Step] = {}
        for schedule in OTHERS:
            with suppress(InputError):
                others[schedule] = _fastest(setting, schedule)
        for name, other in others.items():
            found = auto.speedup(other, "speed-up of auto")
            speedups.setdefault(name, []).append(found.value)
            yield found
        best_s = others["atlas"].result.step_time_s
        for gain in auto.result.gains:
            gains.setdefault(gain.idea, []).append(best_s / gain.step_s)
            best_s = gain.step_s
    for values in gains.values():
        values += [1.0] * (number - len(values))
    yield from _over_all("speed-up of auto", "schedule", speedups)
    yield from _over_all("gain of the idea", "idea", gains)
    for idea, values in gains.items():
        share = sum(value > _A_LITTLE for value in values) / number
        yield Finding(row={"idea": idea}, figure="settings in which it helps", value=share, unit="%", sources=_WHOLE)


def _fastest(setting: Setting, schedule: ScheduleName) -> Step:
    """Return the schedule's step with the sharing that suits it best."""
    steps = [Step.of(plan_of(setting, schedule, sharing), **setting, schedule=schedule) for sharing in SHARINGS]
    return min(steps, key=lambda step: step.result.step_time_s)


def _over_all(figure: str, of: str, found: Mapping[Value, Sequence[float]]) -> Iterator[Finding]:
    """Least, median and most over the settings, for each schedule or idea."""
    for name, values in found.items():
        for words, pick in (("least", min), ("median", median), ("most", max)):
            row: dict[str, Value] = {of: name, "over the settings": words}
            yield Finding(row=row, figure=f"{figure}, all settings", value=pick(values), unit="x", sources=_WHOLE)
