"""Small plans to train with."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geotrain.plan import Plan

MODEL = {
    "layers": 8,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 64,
    "vocab": 97,
    "activation": "swiglu",
}


def plan(
    stages: Sequence[str] = ("east", "south"),
    *,
    job: dict[str, Any] | None = None,
    wan: dict[str, Any] | None = None,
    gpus_per_node: int = 1,
    layers: int | None = None,
    link: dict[str, Any] | None = None,
    **choices: Any,
) -> Plan:
    """A plan over data centers named by their stages, with a tiny model; each node has as many GPUs as told."""
    layers = layers or len(stages) * choices.get("interleave", 1)
    each, rest = divmod(layers, len(stages))
    names = dict.fromkeys([*stages, *(replica["dc"] for replica in choices.get("replicas", []))])
    slots = choices.get("pipelines_per_cell", 1) * choices.get("cells", 1) * max(Counter(stages).values())
    slots += sum(r["cells"] for r in choices.get("replicas", [])) * choices.get("pipelines_per_cell", 1) * len(stages)
    content = {
        "cluster": {
            "name": "small",
            "datacenters": [
                {
                    "name": name,
                    "nodes": max(1, slots * choices.get("tensor_parallel", 1)),
                    "gpus_per_node": gpus_per_node,
                    "gpu": "a100-80gb",
                }
                for name in names
            ],
            "wan": {"default": {"rtt": "10 ms", "pair_cap": "1 Gbit/s", "tcp_window": "1 MB"} | (link or {})},
        },
        "job": {"model": MODEL | {"layers": layers}, "sequence": 16, "microbatch": 2, "microbatches": 4}
        | {"precision": "fp32", "recompute": False}
        | (job or {}),
        "stages": [{"dc": dc, "layers": each + (n < rest)} for n, dc in enumerate(stages)],
        "wan": wan or {},
        **choices,
    }
    return Plan.parse(content, source=Path("plan.yaml"))
