"""Keeps what one process does in its steps; the trainer has it written down after the last. The format is in spans.py.

A span costs a fraction of a microsecond: numbers are appended to flat lists, and sorted out when the step is over.
"""

import json
from collections.abc import Collection, Container
from pathlib import Path
from typing import Any

from geotrain.action import Kind
from geotrain.errors import RunError
from geotrain.plan import Plan
from geotrain.seating import Seat
from geotrain.training.recording import fingerprint
from geotrain.training.spans import Head, spans_path

_ACTION = ("kind", "stage", "microbatch", "start_s", "end_s")
_SEND = ("backward", "stage", "microbatch", "handed_s")
_ARRIVAL = ("backward", "stage", "microbatch", "arrived_s")

Parcel = tuple[int, bool, int, int]
"""Step, whether a gradient, stage that sends, microbatch."""


class Recorder:
    """One process's spans. Times are those of its monotonic clock. `arrived` and `sent` may be called by any thread."""

    def __init__(
        self,
        run: Path,
        seat: Seat,
        *,
        plan: Plan,
        pooled: Collection[int],
        clock_offset_s: float,
        steps: Container[int],
        device: str | None = None,
    ) -> None:
        """Keep the spans of these steps; nothing is written, and no older file touched, before one is over."""
        self.path = spans_path(run, seat)
        self._head = Head(
            plan_fingerprint=fingerprint(plan),
            plan=plan.dump(),
            pooled=sorted(pooled),
            dc=seat.dc,
            rank=seat.rank,
            stage=seat.stage,
            pipeline=seat.pipeline,
            part=seat.part,
            clock_offset_s=clock_offset_s,
            device=device,
        )
        self._wanted = steps
        self._actions: list[Any] = []
        self._sends: list[Any] = []
        self._arrivals: list[Any] = []
        self._steps: list[dict[str, Any]] = []
        self._begun = False

    def action(self, kind: Kind, stage: int, microbatch: int, start_s: float, end_s: float) -> None:
        """The slot did this in the step under way."""
        self._actions.extend((kind, stage, microbatch, start_s, end_s))

    def sent(self, parcel: Parcel, at_s: float) -> None:
        """A parcel was handed to the network."""
        self._sends.extend((*parcel, at_s))

    def arrived(self, parcel: Parcel, at_s: float) -> None:
        """A parcel is here in full, maybe one of a later step."""
        self._arrivals.extend((*parcel, at_s))

    def step(
        self, step: int, *, begin_s: float, reduce_start_s: float, update_start_s: float, update_end_s: float
    ) -> None:
        """The step is over: what was done since the one before belongs to it."""
        actions, self._actions = self._actions, []
        sends, arrivals = _taken(self._sends, step), _taken(self._arrivals, step)
        if step not in self._wanted:
            return
        times = {
            "begin_s": begin_s,
            "reduce_start_s": reduce_start_s,
            "update_start_s": update_start_s,
            "update_end_s": update_end_s,
        }
        columns = {name: actions[place :: len(_ACTION)] for place, name in enumerate(_ACTION)}
        columns["kind"] = [Kind(kind).name for kind in columns["kind"]]
        tables = {
            "actions": columns,
            "sends": dict(zip(_SEND, sends, strict=True)),
            "arrivals": dict(zip(_ARRIVAL, arrivals, strict=True)),
        }
        self._steps.append({"step": step, **times, **tables})

    def write(self) -> None:
        """Append the steps that are over to the file, which begins anew with the first of them."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        lines = [json.dumps(content) for content in steps]
        if not self._begun:
            lines.insert(0, self._head.model_dump_json(by_alias=True))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a" if self._begun else "w", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._begun = True


def _taken(parcels: list[Any], step: int) -> list[list[Any]]:
    """The columns of the step's parcels; these and older ones leave the list, while other threads append to it."""
    width = 1 + len(_SEND)
    known = parcels[:]
    rows = [known[at : at + width] for at in range(0, len(known), width)]
    parcels[: len(known)] = [value for row in rows if row[0] > step for value in row]
    return [[row[place] for row in rows if row[0] == step] for place in range(1, width)]
