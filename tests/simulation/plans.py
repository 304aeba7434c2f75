"""Plans for tests: any pipeline, described by its times and hops instead of by files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geotrain.plan import Plan

SECOND = 1e-3
"""Tests count in milliseconds."""
BYTES = 1_000_000
"""Bytes of a transfer; a pair of `BYTES / SECOND` bytes per second carries it in one millisecond."""


def make_plan(
    *,
    forward: Sequence[float],
    backward: Sequence[float],
    weight: Sequence[float] | None = None,
    recompute: Sequence[float] | None = None,
    occupancy: Sequence[float | None] = (),
    latency: Sequence[float] = (),
    microbatches: int,
    pipelines: int = 1,
    cells: int = 1,
    schedule: str = "1f1b",
    sharing: str = "spatial",
    cap: int | str = "auto",
    capacity: float | None = None,
    activation_bytes: float = 1.0,
    weight_grad_bytes: float = 1.0,
    workspace_bytes: float = 0.0,
    gpu_memory: str = "80 GiB",
    **plan: Any,
) -> Plan:
    """Times in milliseconds. Boundary b crosses the WAN if occupancy[b] is not None, and is instant otherwise."""
    stages = len(forward)
    occupancy = list(occupancy) or [None] * (stages - 1)
    latency = list(latency) or [0.0] * (stages - 1)
    place = [0]
    for occupied in occupancy:
        place.append(place[-1] + (occupied is not None))
    links = [
        {
            "between": [f"dc{place[b]}", f"dc{place[b + 1]}"],
            "rtt": 2 * latency[b] * SECOND,
            **({"pair_cap": BYTES / (occupied * SECOND)} if occupied else {}),
            **({"capacity": capacity * BYTES / SECOND} if capacity else {}),
        }
        for b, occupied in enumerate(occupancy)
        if occupied is not None
    ]
    gpu = {
        "name": "test", "bf16": 1e15, "fp16": 1e15, "fp32": 1e15, "memory": gpu_memory, "memory_bandwidth": 1e12,
    }  # fmt: skip
    nodes = stages * pipelines * cells
    profile = [
        {
            "forward_s": forward[s] * SECOND,
            "backward_s": backward[s] * SECOND,
            "recompute_s": (recompute or forward)[s] * SECOND,
            "weight_grad_s": (weight or [0.5 * b for b in backward])[s] * SECOND,
            "static_bytes": 0,
            "activation_bytes": activation_bytes,
            "weight_grad_bytes": weight_grad_bytes,
            "workspace_bytes": workspace_bytes,
        }
        for s in range(stages)
    ]
    content = {
        "cluster": {
            "datacenters": [
                {"name": f"dc{n}", "nodes": nodes, "gpu": gpu, "memory_reserve": 0} for n in range(place[-1] + 1)
            ],
            "wan": {"links": links},
        },
        "job": {
            "model": {"layers": stages, "hidden": 64, "heads": 2, "vocab": 100},
            "sequence": 16,
            "microbatches": microbatches,
            "recompute": recompute is not None,
            "profile": {"stage": profile, "boundary_bytes": BYTES, "gradient_bytes": 0, "optimizer_s": 0},
        },
        "stages": [{"dc": f"dc{n}", "layers": 1} for n in place],
        "pipelines_per_cell": pipelines,
        "cells": cells,
        "schedule": schedule,
        "max_in_flight": cap,
        "wan": {"connections": "auto", "sharing": sharing},
        **plan,
    }
    return Plan.parse(content, source=Path("plan.yaml"))
