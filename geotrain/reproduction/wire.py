"""What the WAN does to one connection and to many, and to each kind of parallelism."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from geotrain.network import pair_rate
from geotrain.plan import Plan
from geotrain.reproduction.finding import Finding, Source, Value
from geotrain.reproduction.schedules import Step
from geotrain.reproduction.settings import (
    BOUNDARY_BYTES,
    CONNECTIONS,
    FABRIC,
    SOURCE,
    WAN,
    Connections,
    gpt_a,
    stage_profile,
)
from geotrain.units import RATE, parse

_MEGABIT = parse("1 Mbit/s", RATE)
_ALL_REDUCES = 6
"""Of a layer and a microbatch: two forward, two again for the recompute, two backward."""
_FAST = {"rtt": "20 us", "pair_cap": "100 Gbit/s"}
"""A WAN like the inside of a data center."""
_FORWARD_S = 0.0125


def bandwidth(*, rtts_ms: Sequence[float]) -> Iterator[Finding]:
    """Rate of a pair over round trips, for one connection and for as many as it takes."""
    for rtt_ms in rtts_ms:
        steps = {
            words: Step.of(gpt_a("varuna", connections, "spatial", rtt_ms=rtt_ms), rtt_ms=rtt_ms, connections=words)
            for words, connections in CONNECTIONS.items()
        }
        for step in steps.values():
            rate = step.result.links[0].rate / _MEGABIT
            yield step.found("rate", rate, "Mbit/s", ".wan[0].rate_bytes_per_s * 8 / 1e6")
        many = steps["many"]
        yield many.found("connections", many.result.links[0].connections, "", ".wan[0].connections")
        read = ".wan[0].rate_bytes_per_s"
        yield Finding(
            row={"rtt_ms": rtt_ms},
            figure="many over one",
            value=many.result.links[0].rate / steps["one"].result.links[0].rate,
            unit="x",
            sources=(many.source(read), steps["one"].source(read)),
        )


def parallelism(*, rtts_ms: Sequence[float], microbatches: int) -> Iterator[Finding]:
    """A step with each kind of parallelism across two data centers, over the same where the WAN is like a fabric."""
    for words, connections in CONNECTIONS.items():
        for rtt_ms in rtts_ms:
            link: Mapping[str, Any] = WAN | {"rtt": rtt_ms / 1e3}
            for kind, plan_of in (("data", _data_parallel), ("pipeline", _pipeline_parallel)):
                row: dict[str, Value] = {"parallelism": kind, "rtt_ms": rtt_ms, "connections": words}
                far = Step.of(plan_of(link, connections, microbatches), **row)
                near = Step.of(plan_of(_FAST, connections, microbatches), **(row | {"rtt_ms": 0}))
                slower = far.result.step_time_s / near.result.step_time_s
                sources = (far.source(".step_time_s"), near.source(".step_time_s"))
                yield Finding(row=row, figure="slowdown", value=slower, unit="x", sources=sources)
            yield Finding(
                row={"parallelism": "tensor", "rtt_ms": rtt_ms, "connections": words},
                figure="slowdown",
                value=_tensor_parallel_s(link, connections) / _tensor_parallel_s(_FAST, connections),
                unit="x",
                sources=(Source(command="geotrain reproduce --only parallelism --json"),),
            )


def _plan(link: Mapping[str, Any], connections: Connections, microbatches: int, where: Mapping[str, Any]) -> Plan:
    names = ("east", "south")
    content = {
        "cluster": {
            "datacenters": [{"name": name, "nodes": 8, "gpu": "a100-80gb", "fabric": FABRIC} for name in names],
            "wan": {"default": dict(link)},
        },
        "job": {
            "model": {"name": "gpt-a", "layers": 4},
            "microbatches": microbatches,
            "profile": {"stage": stage_profile(_FORWARD_S), "optimizer_s": 0},
        },
        "schedule": "1f1b",
        "wan": {"connections": connections, "sharing": "spatial"},
        **where,
    }
    return Plan.parse(content, source=SOURCE)


def _data_parallel(link: Mapping[str, Any], connections: Connections, microbatches: int) -> Plan:
    stages = [{"dc": "east", "layers": 1}] * 4
    return _plan(link, connections, microbatches, {"stages": stages, "replicas": [{"dc": "south", "cells": 1}]})


def _pipeline_parallel(link: Mapping[str, Any], connections: Connections, microbatches: int) -> Plan:
    stages = [{"dc": dc, "layers": 1} for dc in ("east", "east", "south", "south")]
    return _plan(link, connections, microbatches, {"stages": stages, "pipelines_per_cell": 2})


def _tensor_parallel_s(link: Mapping[str, Any], connections: Connections) -> float:
    """A layer and a microbatch on two GPUs, one in each data center; by formula, as no plan may say so.

    An all-reduce of two sends the activation once and waits for two half round trips.
    """
    path = _data_parallel(link, connections, 1).cluster.link("east", "south")
    enough = 64 if connections == "auto" else connections
    all_reduce_s = BOUNDARY_BYTES / pair_rate(path, enough) + (path.rtt_s or 0.0)
    return 4 * _FORWARD_S + _ALL_REDUCES * all_reduce_s
