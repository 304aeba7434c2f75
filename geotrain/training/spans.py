"""What one process saw of its steps, as a file: `RUN/spans/<dc>-<rank>.jsonl`. JSON lines, a head and then the steps.

    {"geotrain_spans": 1, "plan_fingerprint": "0f3a...", "plan": {...}, "pooled": [1, 2],
     "dc": "east", "rank": 0, "stage": 0, "pipeline": 0, "part": 0, "clock_offset_s": -0.00012, "device": "cpu"}
    {"step": 7, "begin_s": ..., "reduce_start_s": ..., "update_start_s": ..., "update_end_s": ...,
     "actions": {"kind": ["F", ...], "stage": [0, ...], "microbatch": [0, ...], "start_s": [...], "end_s": [...]},
     "sends": {"backward": [false, ...], "stage": [...], "microbatch": [...], "handed_s": [...]},
     "arrivals": {"backward": [false, ...], "stage": [...], "microbatch": [...], "arrived_s": [...]}}

`stage` of the head is the slot's; those of spans are counted through all chunks, and a send's or an arrival's is that
of the sender. All times are on the process's monotonic clock; plus `clock_offset_s` they are on that of rank 0 of the
leading data center.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from geotrain.errors import InputError
from geotrain.files import Document, read_text
from geotrain.seating import Seat
from geotrain.training.columns import Clock, Count, Flag, Letter, Table, read_json


def spans_path(run: Path, seat: Seat) -> Path:
    """Where a process keeps its spans."""
    return run / "spans" / f"{seat.name}.jsonl"


class Head(Document):
    """Whose spans, and of which plan."""

    version: Literal[1] = Field(1, alias="geotrain_spans")
    plan_fingerprint: str
    plan: dict[str, Any]
    pooled: list[Count]
    dc: str
    rank: Count
    stage: Count
    pipeline: Count
    part: Count
    clock_offset_s: Clock
    device: str | None = None
    """What computed: the GPU's name, `cpu` or `emulated`; older files do not say."""


class Actions(Table):
    """What the slot did."""

    kind: list[Letter]
    stage: list[Count]
    microbatch: list[Count]
    start_s: list[Clock]
    end_s: list[Clock]


class Sends(Table):
    """What it handed to the network."""

    backward: list[Flag]
    stage: list[Count]
    microbatch: list[Count]
    handed_s: list[Clock]


class Arrivals(Table):
    """What it had received in full."""

    backward: list[Flag]
    stage: list[Count]
    microbatch: list[Count]
    arrived_s: list[Clock]


class StepSpans(Document):
    """One step."""

    step: Count
    begin_s: Clock
    reduce_start_s: Clock
    update_start_s: Clock
    update_end_s: Clock
    actions: Actions
    sends: Sends
    arrivals: Arrivals


@dataclass(frozen=True, kw_only=True)
class Spans:
    """The file of one process."""

    source: Path
    head: Head
    steps: dict[int, StepSpans]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check the file; InputError if anything about it is wrong."""
        text = read_text(path)
        if not text.endswith("\n"):
            raise InputError(f"{path}: line {text.count(chr(10)) + 1} has no end: its process stopped while writing")
        head, *steps = text.splitlines()
        places = [Path(f"{path}: line {number}") for number in range(2, len(steps) + 2)]
        spans = [StepSpans.parse(read_json(line, source=at), source=at) for line, at in zip(steps, places, strict=True)]
        return cls(
            source=path,
            head=Head.parse(read_json(head, source=path), source=path),
            steps={step.step: step for step in spans},
        )
