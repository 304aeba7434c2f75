"""Answers made by hand: real simulations of layouts on small clusters, without a search."""

from functools import cache
from pathlib import Path
from typing import Any

from geotrain.plan import Plan
from geotrain.planner.answer import Answer, Scored
from geotrain.planner.ask import Ask
from geotrain.simulation import simulate


def datacenter(name: str, nodes: int = 8, **fields: Any) -> dict[str, Any]:
    """A data center with eight H100 nodes, unless told otherwise."""
    fabric = {"rate": "400 Gbit/s", "latency": "10 us"}
    return {"name": name, "nodes": nodes, "gpu": "h100", "price_per_gpu_hour": 2.5, "fabric": fabric, **fields}


def make_plan(names: list[str], *, used: list[str], replicas: list[str] | None = None, **choices: Any) -> Plan:
    """Eight layers of a small GPT in a stage of two layers per data center in `used` and turn."""
    content = {
        "cluster": {
            "datacenters": [datacenter(name) for name in names],
            "wan": {"default": {"rtt": "30 ms", "pair_cap": "10 Gbit/s", "tcp_window": "4 MB", "price_per_gb": 0.01}},
        },
        "job": {
            "model": {"name": "gpt-b", "layers": 8, "tied_embeddings": False},
            "sequence": 2048,
            "microbatches": 8,
        },
        "stages": [{"dc": name, "layers": 8 // len(used)} for name in used],
        "pipelines_per_cell": 2,
        "schedule": "1f1b",
        "replicas": [{"dc": name, "cells": choices.get("cells", 1)} for name in replicas or []],
        **choices,
    }
    return Plan.parse(content, source=Path("plan.yaml"))


def answer(best: Plan, *others: Plan, published: Plan | None = None, ask: Ask | None = None) -> Answer:
    """The plans' simulations as a finished search; the frontier is what is on it."""
    scored = [Scored(result=simulate(plan)) for plan in (best, *others)]
    baseline = None if published is None else Scored(result=simulate(published))
    cheapest, frontier = float("inf"), []
    for one in sorted(scored, key=lambda one: one.score("time")):
        if one.cost_per_token < cheapest:
            cheapest = one.cost_per_token
            frontier.append(one)
    return Answer(
        ask=ask or Ask(),
        best=scored[0],
        published=baseline,
        others=tuple(scored[1:]),
        frontier=tuple(frontier),
        evaluations=len(scored),
        considered=120,
        search_s=0.25,
        gap=0.004,
        ending="proven",
    )


@cache
def three_datacenters() -> Answer:
    """Two of three data centers in use; the third would cost more than it brings."""
    names = ["east", "south", "west"]
    return answer(
        make_plan(names, used=["east", "east", "south", "south"], cells=2),
        make_plan(names, used=["east", "east"], cells=2),
        make_plan(names, used=["east", "east", "south", "west"]),
        make_plan(names, used=["east", "east"], replicas=["south", "west"]),
        published=make_plan(names, used=["east", "south", "west", "west"]),
    )
