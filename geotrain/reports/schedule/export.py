"""A step's action lists for other frameworks: text to read, JSON with times, CSV for torch.distributed.pipelining."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from geotrain.action import Action, Kind
from geotrain.reports.words import KIND_WORDS, plan_sentence
from geotrain.simulation.result import Result
from geotrain.units import format_seconds


class Span(NamedTuple):
    """An action and when it is predicted to run."""

    action: Action
    start_s: float
    end_s: float


Pipeline = list[list[Span]]
"""Slot by slot: what it does, in order."""


def pipelines(result: Result) -> list[Pipeline]:
    """What each pipeline of a cell does; those that were simulated as one are alike."""
    timeline, slots = result.timeline, result.timeline.num_stages
    done, rows = timeline.actions, timeline.by_slot
    columns = (done.stage, done.kind, done.microbatch, done.start_s, done.end_s)
    spans = [
        Span(Action(stage, Kind(kind), microbatch), start_s, end_s)
        for stage, kind, microbatch, start_s, end_s in zip(*(column[rows].tolist() for column in columns), strict=True)
    ]
    ends = np.cumsum(np.bincount(timeline.slot_of_action)).tolist()
    lists = [spans[start:end] for start, end in pairwise([0, *ends])]
    simulated = [lists[first : first + slots] for first in range(0, len(lists), slots)]
    return simulated * timeline.copies


def schedule_csv(pipeline: Pipeline) -> str:
    """A row per rank, as torch's `_load_csv` takes it. R is left out: torch recomputes inside its backward."""
    return "".join(",".join(_words(slot, but=Kind.R)) + "\n" for slot in pipeline)


def schedule_text(result: Result) -> str:
    """A line per slot; pipelines with the same lists together. Lines that begin with # are not actions."""
    plan = result.plan
    whose: dict[str, list[str]] = {}
    for number, pipeline in enumerate(pipelines(result)):
        text = "".join(" ".join(_words(slot)) + "\n" for slot in pipeline)
        whose.setdefault(text, []).append(str(number))
    letters = ", ".join(f"{kind.name} {word}" for kind, word in KIND_WORDS.items())
    head = [
        f"# {plan_sentence(plan)}",
        f"# K = {plan.pipelines_per_cell}; predicted step {format_seconds(result.step_time_s)}",
        f"# one line per slot; 2F0 is stage 2, forward, microbatch 0: {letters}",
    ]
    lists = [f"\n# pipeline {', '.join(numbers)} of a cell\n{text}" for text, numbers in whose.items()]
    return "\n".join(head) + "\n" + "".join(lists)


def schedule_json(result: Result) -> dict[str, Any]:
    """Everything, with the predicted times."""
    plan, slots = result.plan, len(result.plan.stages)
    return {
        "schema": "schedule",
        "cluster": plan.cluster.name,
        "model": plan.job.model.name,
        "schedule": plan.schedule,
        "pipelines_per_cell": plan.pipelines_per_cell,
        "cells": plan.cells,
        "microbatches": plan.num_microbatches,
        "step_time_s": float(result.step_time_s),
        "sharing": list(result.sharing),
        "stages": [
            {
                "stage": stage,
                "slot": stage % slots,
                "dc": plan.stages[stage % slots].dc,
                "layers": plan.stages[stage % slots].layers // plan.interleave,
            }
            for stage in range(slots * plan.interleave)
        ],
        "pipelines": [
            {"pipeline": number, "slots": [_slot_json(result, slot, spans) for slot, spans in enumerate(pipeline)]}
            for number, pipeline in enumerate(pipelines(result))
        ],
    }


def _slot_json(result: Result, slot: int, spans: list[Span]) -> dict[str, Any]:
    actions = [{"action": str(action), "start_s": start_s, "end_s": end_s} for action, start_s, end_s in spans]
    return {"slot": slot, "dc": result.plan.stages[slot].dc, "actions": actions}


def _words(spans: list[Span], *, but: Kind | None = None) -> list[str]:
    return [str(span.action) for span in spans if span.action.kind != but]
