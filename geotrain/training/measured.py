"""From what every process saw to what happened: clocks aligned, sends and arrivals joined, one Timeline per step. Pure
but for `gather`, which reads the files.

Nobody sees a transfer leave: its end is the arrival less the latency that the cluster file gives the way, and it starts
when it was handed over or when the transfer before it on the same channel had ended.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geotrain.action import MICROBATCH_MASK, MICROBATCH_SHIFT, PIPELINE_SHIFT, STAGE_MASK, STAGE_SHIFT, Kind
from geotrain.cost import transfer_bytes
from geotrain.errors import InputError
from geotrain.network import path_between
from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.timeline import Actions, Floats, Ints, Timeline, Transfers
from geotrain.training.recording import Recording, problem
from geotrain.training.spans import Head, Spans, StepSpans
from geotrain.units import plural

TIMELINE = "timeline.json"
"""The file of a run that `gather` can make from its spans."""


def gather(run: Path) -> Recording:
    """The steps that all processes of a run have recorded; InputError where something is missing."""
    paths = sorted((run / "spans").glob("*.jsonl"))
    if not paths:
        raise InputError(f"{run}: has neither {TIMELINE} nor spans/*.jsonl, so nothing was recorded there")
    ranks = [Spans.load(path) for path in paths]
    head = ranks[0].head
    for spans in ranks:
        if (spans.head.plan_fingerprint, spans.head.pooled) != (head.plan_fingerprint, head.pooled):
            raise InputError(f"{spans.source}: was recorded with another plan than {ranks[0].source}")
    plan = Plan.parse(head.plan, source=ranks[0].source)
    pooled = frozenset(head.pooled)
    steps = merge(plan, pooled, ranks)
    for step, timeline in steps:
        if wrong := problem(timeline, plan):
            raise InputError(f"{run}: spans of step {step}: {wrong}")
    found: dict[str, set[str]] = {}
    for spans in ranks:
        if spans.head.device is not None:
            found.setdefault(spans.head.dc, set()).add(spans.head.device)
    devices = {dc: sorted(names) for dc, names in found.items()}
    return Recording(origin="measured", plan=plan, pooled=pooled, steps=steps, devices=devices)


def merge(plan: Plan, pooled: frozenset[int], ranks: Sequence[Spans]) -> list[tuple[int, Timeline]]:
    """The steps that all slots have recorded; of a slot of several GPUs, the first one speaks."""
    slots = {(spans.head.pipeline, spans.head.stage): spans for spans in ranks if spans.head.part == 0}
    seats = [seat for seat in Seating(plan).seats if seat.part == 0]
    if missing := [seat.name for seat in seats if seat.slot not in slots]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"the spans of {missing[0]}{more} are missing: the plan has {plural(len(seats), 'slot')}")
    needed = [slots[seat.slot] for seat in seats]
    steps = sorted(set.intersection(*(set(spans.steps) for spans in needed)))
    if not steps:
        raise InputError(f"no step was recorded by all {plural(len(needed), 'slot')}")
    return [(step, _timeline(plan, pooled, [(spans.head, spans.steps[step]) for spans in needed])) for step in steps]


class _Stack:
    """One table of all slots, on one clock."""

    def __init__(self, ranks: list[tuple[Head, StepSpans]], name: str, zero_s: float) -> None:
        self.step = ranks[0][1].step
        self._tables = [getattr(step, name) for _, step in ranks]
        lengths = [len(table.stage) for table in self._tables]
        self._offset_s = np.repeat([head.clock_offset_s for head, _ in ranks], lengths)
        self._zero_s = zero_s
        self.pipeline = np.repeat([head.pipeline for head, _ in ranks], lengths)
        self.stage, self.microbatch = self._column("stage"), self._column("microbatch")

    def _column(self, name: str, dtype: type = np.int64) -> NDArray[Any]:
        return np.concatenate([np.array(getattr(table, name), dtype=dtype) for table in self._tables])

    def times(self, name: str) -> Floats:
        """A column of times, in seconds since the step began."""
        return np.asarray(self._column(name, np.float64) + self._offset_s - self._zero_s)

    @property
    def kind(self) -> Ints:
        return np.array([Kind[letter] for table in self._tables for letter in table.kind], dtype=np.int64)

    @property
    def parcel(self) -> Ints:
        """A number for each that tells pipeline, stage, microbatch and direction, as in a packed action."""
        place = self.pipeline << PIPELINE_SHIFT | self.stage << STAGE_SHIFT | self.microbatch << MICROBATCH_SHIFT
        return np.asarray(place | self._column("backward"))


def _timeline(plan: Plan, pooled: frozenset[int], ranks: list[tuple[Head, StepSpans]]) -> Timeline:
    zero_s = min(step.begin_s + head.clock_offset_s for head, step in ranks)
    done = _Stack(ranks, "actions", zero_s)
    start_s = done.times("start_s")
    order = np.lexsort((done.stage, done.pipeline, start_s))
    closing = np.zeros((3, len(plan.stages)))
    for head, step in ranks:
        times = np.array([step.reduce_start_s, step.update_start_s, step.update_end_s]) + head.clock_offset_s - zero_s
        closing[:, head.stage] = np.maximum(closing[:, head.stage], times)
    return Timeline(
        num_stages=len(plan.stages),
        num_pipelines=plan.num_pipelines,
        copies=1,
        actions=Actions(
            kind=done.kind[order],
            stage=done.stage[order],
            microbatch=done.microbatch[order],
            pipeline=done.pipeline[order],
            start_s=start_s[order],
            end_s=done.times("end_s")[order],
        ),
        transfers=_transfers(plan, pooled, _Stack(ranks, "sends", zero_s), _Stack(ranks, "arrivals", zero_s)),
        reduce_start_s=closing[0],
        update_start_s=closing[1],
        update_end_s=closing[2],
    )


def _transfers(plan: Plan, pooled: frozenset[int], sends: _Stack, arrivals: _Stack) -> Transfers:
    parcel, handed_s, arrived_s = _joined(sends, arrivals, len(plan.stages))
    stage, microbatch, pipeline, backward = _unpacked(parcel)
    source, target = _ends(parcel, len(plan.stages))
    channel, latency_s = _channels(plan, pooled, source, target, pipeline)
    # Clocks agree to a fraction of a millisecond only, and nothing arrives before it was sent.
    arrive_s = np.maximum(arrived_s, handed_s)
    end_s, start_s = np.maximum(arrive_s - latency_s, handed_s), handed_s.copy()
    by_channel = np.lexsort((handed_s, arrive_s, channel))
    for rows in np.split(by_channel, np.flatnonzero(np.diff(channel[by_channel])) + 1):
        end_s[rows] = np.maximum.accumulate(end_s[rows])
        start_s[rows[1:]] = np.maximum(handed_s[rows[1:]], end_s[rows[:-1]])
    order = np.lexsort((stage, pipeline, start_s))
    return Transfers(
        source=source[order],
        target=target[order],
        backward=backward[order],
        stage=stage[order],
        microbatch=microbatch[order],
        pipeline=pipeline[order],
        start_s=start_s[order],
        end_s=end_s[order],
        arrive_s=arrive_s[order],
    )


def _joined(sends: _Stack, arrivals: _Stack, slots: int) -> tuple[Ints, Floats, Floats]:
    """Parcels, when they were handed over and when they arrived."""
    sent, came = sends.parcel, arrivals.parcel
    handed_s, arrived_s = sends.times("handed_s"), arrivals.times("arrived_s")
    # What goes from one chunk of a slot to the next is there without being sent.
    source, target = _ends(came, slots)
    came, arrived_s = came[source != target], arrived_s[source != target]
    by_sent, by_came = np.argsort(sent), np.argsort(came)
    if not np.array_equal(sent[by_sent], came[by_came]):
        raise InputError(f"step {sends.step}: {_unmatched(sent, came)}")
    return sent[by_sent], handed_s[by_sent], arrived_s[by_came]


def _unmatched(sent: Ints, came: Ints) -> str:
    numbers = Counter(sent.tolist())
    numbers.subtract(Counter(came.tolist()))
    parcel, number = next((parcel, number) for parcel, number in sorted(numbers.items()) if number)
    stage, microbatch, pipeline, backward = (column[0].item() for column in _unpacked(np.array([parcel])))
    what = "gradient" if backward else "activation"
    how = "was sent and never arrived" if number > 0 else "arrived and was never sent"
    return f"the {what} of microbatch {microbatch} from stage {stage} in pipeline {pipeline} {how}"


def _unpacked(parcel: Ints) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    stage, microbatch = parcel >> STAGE_SHIFT & STAGE_MASK, parcel >> MICROBATCH_SHIFT & MICROBATCH_MASK
    return stage, microbatch, parcel >> PIPELINE_SHIFT, (parcel & 1).astype(np.bool_)


def _ends(parcel: Ints, slots: int) -> tuple[Ints, Ints]:
    """Slot stages that send and receive."""
    stage, _, _, backward = _unpacked(parcel)
    return stage % slots, (stage + np.where(backward, -1, 1)) % slots


def _channels(plan: Plan, pooled: frozenset[int], source: Ints, target: Ints, pipeline: Ints) -> tuple[Ints, Floats]:
    """A number for the channel of each transfer, and its latency."""
    neighbours = np.abs(source - target) == 1
    boundary = np.where(neighbours, np.minimum(source, target), np.maximum(source, target))
    together = np.isin(boundary, list(pooled))
    whose = np.where(together, pipeline // plan.pipelines_per_cell, pipeline)
    keys, channel = np.unique(np.stack([source, target, together, whose], 1), axis=0, return_inverse=True)
    size_bytes = transfer_bytes(plan.job)
    latency_s = [
        path_between(plan, here, there, pooled=bool(together), size_bytes=size_bytes).latency_s
        for here, there, together, _ in keys.tolist()
    ]
    return channel.reshape(-1), np.array(latency_s, dtype=np.float64)[channel.reshape(-1)]
