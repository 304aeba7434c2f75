"""How good `auto` is over many settings, against every published schedule and against the lower bound.

Two pipelines per cell share their WAN bandwidth; stages are equal, with no recompute, so memory limits bite; every
schedule opens as many connections as help.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from statistics import median
from typing import Any

from geotrain.errors import InputError
from geotrain.plan import Plan, ScheduleName
from geotrain.reproduction.finding import Finding, Source
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
OTHERS: tuple[ScheduleName, ...] = ("atlas", "zero-bubble", "varuna", "1f1b", "gpipe")
_STEPS = (0.8566748838545029, 0.7338918566271260, 0.6287067210378087, 0.5385972572236101, 0.4614019, 0.3952704)
_FORWARD_S = 12.5e-3
_ACTIVATION_BYTES = 1e9
_KEPT_FOR_W = 32 / 34
_TRANSFER_BYTES = 32e6


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


def plan_of(setting: Setting, schedule: ScheduleName) -> Plan:
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
            "datacenters": [{"name": f"dc{n}", "nodes": 2 * stages, "gpu": gpu} for n in range(hops + 1)],
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
        "wan": {"sharing": "temporal" if schedule in ("atlas", "auto") else "spatial"},
    }
    return Plan.parse(content, source=SOURCE)


def grid(*, number: int) -> Iterator[Finding]:
    """`auto` at so many settings: over its bound, and how many times as fast as each schedule that fits."""
    gains: dict[str, list[float]] = {}
    for setting in islice(settings(), number):
        auto = Step.of(plan_of(setting, "auto"), **setting, schedule="auto")
        yield auto.found("step over bound", auto.result.step_over_bound, "x", ".step_over_bound")
        for schedule in OTHERS:
            try:
                other = Step.of(plan_of(setting, schedule), **setting, schedule=schedule)
            except InputError:
                continue
            found = auto.speedup(other, "speed-up of auto")
            gains.setdefault(schedule, []).append(found.value)
            yield found
    whole = (Source(command="geotrain reproduce --only auto --json"),)
    for name, values in gains.items():
        for words, of in (("least", min), ("median", median), ("most", max)):
            row = {"schedule": name, "over the settings": words}
            yield Finding(row=row, figure="speed-up of auto, all settings", value=of(values), unit="x", sources=whole)
