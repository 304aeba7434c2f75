"""A Result as plain data: the object that `geotrain simulate --json` prints. Its names are a contract."""

import math
from dataclasses import asdict
from typing import Any

from geotrain.reports.step.tracks import wan_rows
from geotrain.simulation.result import LinkUse, Result, StageMemory
from geotrain.timeline import Timeline


def result_json(result: Result) -> dict[str, Any]:
    """Figures as plain Python numbers, text, lists and dictionaries."""
    timeline = result.timeline
    inter, intra = _transfer_times(result)
    return {
        "step_time_s": float(result.step_time_s),
        "lower_bound_s": float(result.bound.total_s),
        "step_over_bound": float(result.step_over_bound),
        "bound": {"total_s": float(result.bound.total_s), "binding": result.bound.binding},
        "gpu_utilization": float(result.gpu_utilization),
        "bubble_fraction": float(result.bubble_fraction),
        "mfu": float(result.mfu),
        "tokens_per_s": float(result.tokens_per_s),
        "gpus": result.plan.num_gpus,
        "peak_memory_bytes": [float(memory.total_bytes) for memory in result.memory],
        "memory": [_memory(memory) for memory in result.memory],
        "wan": [_link(link) for link in result.links],
        "schedule": result.plan.schedule,
        "sharing": list(result.sharing),
        "time_shares": {name: float(share) for name, share in asdict(result.shares).items()},
        "cost_per_step": {
            "gpu": float(result.gpu_cost),
            "egress": float(result.egress_cost),
            "total": float(result.gpu_cost + result.egress_cost),
        },
        "cost_per_billion_tokens": float(result.cost_per_billion_tokens),
        "num_spans": {"actions": len(timeline.actions), "transfers": len(timeline.transfers)},
        "stage_span_s": _stage_spans(timeline),
        "gains": [{"idea": gain.idea, "step_time_s": float(gain.step_s)} for gain in result.gains],
        "inter_dc_time_s": inter,
        "intra_dc_time_s": intra,
    }


def _stage_spans(timeline: Timeline) -> list[float]:
    """Per stage: from its first action's start to its last one's end, in any pipeline."""
    stage = timeline.actions.stage % timeline.num_stages
    first = [float(timeline.actions.start_s[stage == s].min()) for s in range(timeline.num_stages)]
    return [float(end - start) for start, end in zip(first, timeline.reduce_start_s, strict=True)]


def _memory(memory: StageMemory) -> dict[str, float]:
    return {
        "static_bytes": float(memory.static_bytes),
        "activations_bytes": float(memory.activations_bytes),
        "workspace_bytes": float(memory.workspace_bytes),
        "total_bytes": float(memory.total_bytes),
        "limit_bytes": float(memory.limit_bytes),
        "in_flight": float(memory.in_flight),
    }


def _link(link: LinkUse) -> dict[str, str | float | int | None]:
    return {
        "from": link.source,
        "to": link.target,
        "bytes": float(link.size_bytes),
        "busy_fraction": float(link.busy_fraction),
        # JSON has no infinity: null is an unlimited pair.
        "rate_bytes_per_s": float(link.rate) if math.isfinite(link.rate) else None,
        "connections": int(link.connections),
        "cost": float(link.cost),
    }


def _transfer_times(result: Result) -> tuple[float, float]:
    """Seconds that channels were held, over the WAN and inside data centers, all cells and copies."""
    timeline = result.timeline
    held = timeline.transfers.end_s - timeline.transfers.start_s
    crosses = wan_rows(result.plan, timeline)
    times = result.plan.num_pipelines // timeline.num_pipelines
    return float(held[crosses].sum()) * times, float(held[~crosses].sum()) * times
