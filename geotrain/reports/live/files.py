"""What a run and a service beside it left behind, on one clock."""

import json
from pathlib import Path

import numpy as np

from geotrain.action import Kind
from geotrain.errors import RunError
from geotrain.files import read_text
from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.simulation.prefill.outcome import Spans, TrainingSpans
from geotrain.timeline import Floats
from geotrain.training.spans import Spans as Recorded
from geotrain.training.spans import StepSpans, spans_path


def trained(plan: Plan, run: Path, *, zero_s: float, skip: int) -> tuple[TrainingSpans, Floats, Floats]:
    """What the processes of a run recorded, edges of its steps, and what was trained in each; without the first few.

    All processes have the machine's clock, so that none needs to be shifted.
    """
    recorded = [Recorded.load(spans_path(run, seat)).steps for seat in Seating(plan).seats]
    steps = sorted(set.intersection(*map(set, recorded)))[skip:]
    if not steps:
        raise RunError(f"{run}: no more than {skip} steps were recorded")
    begins_s = [min(slot[step].begin_s for slot in recorded) for step in steps]
    edges_s = np.array([*begins_s, max(slot[steps[-1]].update_end_s for slot in recorded)]) - zero_s
    rows = [(slot, taken[step]) for step in steps for slot, taken in enumerate(recorded)]
    trained_s = [sum(_busy_s(taken[step]) for taken in recorded) for step in steps]
    return _training(rows, zero_s), edges_s, np.array(trained_s)


def _busy_s(step: StepSpans) -> float:
    return sum(step.actions.end_s) - sum(step.actions.start_s)


def _training(rows: list[tuple[int, StepSpans]], zero_s: float) -> TrainingSpans:
    found = TrainingSpans(
        slot=np.repeat([slot for slot, _ in rows], [len(step.actions.kind) for _, step in rows]),
        kind=np.array([Kind[kind] for _, step in rows for kind in step.actions.kind]),
        stage=np.array([stage for _, step in rows for stage in step.actions.stage]),
        microbatch=np.array([number for _, step in rows for number in step.actions.microbatch]),
        start_s=np.array([start_s for _, step in rows for start_s in step.actions.start_s]) - zero_s,
        end_s=np.array([end_s for _, step in rows for end_s in step.actions.end_s]) - zero_s,
    )
    order = np.argsort(found.start_s, kind="stable")
    return TrainingSpans(**{name: column[order] for name, column in vars(found).items()})


def prefilled(plan: Plan, journal: Path, *, zero_s: float) -> tuple[Spans, int]:
    """What a service's journal says that the slots prefilled, and how often training had to wait for it."""
    slots = {seat.name: number for number, seat in enumerate(Seating(plan).seats)}
    lines = [json.loads(line) for line in read_text(journal).splitlines()]
    overruns = {line["slot"]: line["overruns"] for line in lines if line["what"] == "windows"}
    pieces = sorted(
        (start_s - zero_s, end_s - zero_s, slots[line["slot"]], line["booking"])
        for line in lines
        if line["what"] == "work"
        for start_s, end_s in line["pieces"]
    )
    columns = np.array(pieces, dtype=np.float64).reshape(-1, 4)
    spans = Spans(
        start_s=columns[:, 0],
        end_s=columns[:, 1],
        slot=columns[:, 2].astype(np.int64),
        request=columns[:, 3].astype(np.int64),
        tokens=np.zeros(len(columns), dtype=np.int64),
    )
    return spans, sum(overruns.values())
