"""Predicted against measured: the steps of a simulation and of a run, per kind of action and per link."""

import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geotrain.cost import transfer_bytes
from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.reports.runs.means import Mean, Sort, sorts, span_means
from geotrain.reports.textbars import figure_table
from geotrain.reports.words import percent, plan_sentence
from geotrain.simulation.problem import Problem
from geotrain.training.recording import Recording
from geotrain.units import format_rate, format_seconds, format_traffic, plural


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sort of spans, on both sides; None where a side has none."""

    sort: Sort
    simulated: Mean | None
    measured: Mean | None

    @property
    def count(self) -> float:
        """Per step; of the measured ones, if there are any."""
        known = self.measured or self.simulated
        return known.count if known else 0.0

    @property
    def ratio(self) -> float | None:
        """Measured over simulated: above 1 took longer than predicted."""
        if self.simulated is None or self.measured is None or self.simulated.span_s == 0:
            return None
        return self.measured.span_s / self.simulated.span_s


@dataclass(frozen=True, kw_only=True)
class OtherDevice:
    """A data center that computed on something else than the plan says."""

    dc: str
    planned: str
    ran: str


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A simulation and a run of the same layout."""

    simulated: Recording
    measured: Recording

    def __post_init__(self) -> None:
        for side in (self.simulated, self.measured):
            if not side.step_time_s:
                raise InputError(f"the {side.origin} step takes no time")
        ours, theirs = (_shape(side.plan) for side in (self.simulated, self.measured))
        for what, value in ours.items():
            if value != theirs[what]:
                raise InputError(f"the two plans differ in {what}: {value} simulated, {theirs[what]} measured")

    @property
    def error(self) -> float:
        """Of the predicted step time; signed, above 0 is too slow."""
        return self.simulated.step_time_s / self.measured.step_time_s - 1

    @property
    def differing(self) -> list[str]:
        """Fields in which the plans differ, a profile say, although their layouts are the same."""
        ours, theirs = (side.plan.dump() for side in (self.simulated, self.measured))
        names = [name for name in {**ours, **theirs} if name != "made_by"]
        return [name for name in names if ours.get(name) != theirs.get(name)]

    @property
    def other_devices(self) -> list[OtherDevice]:
        """Data centers that computed on something else than the simulated plan's GPU, of which no profile is known."""
        plan = self.simulated.plan
        times = [plan.job.profile.of_stage(slot) for slot in range(len(plan.stages))]
        known = {
            stage.dc: time.forward_s is not None and time.backward_s is not None
            for stage, time in zip(plan.stages, times, strict=True)
        }
        found = []
        for dc, ran in self.measured.devices.items():
            gpu = plan.cluster.datacenter(dc).gpu.name
            other = [device for device in ran if device != "emulated" and not _is_called(device, gpu)]
            if other and not known.get(dc, all(known.values())):
                found.append(OtherDevice(dc=dc, planned=gpu, ran=" and ".join(other)))
        return found

    @property
    def warnings(self) -> list[str]:
        """What makes the comparison one of different things, a sentence each."""
        said = []
        if others := self.other_devices:
            planned, ran = (
                [*dict.fromkeys(names)] for names in zip(*((d.planned, d.ran) for d in others), strict=True)
            )
            said.append(
                f"The plan has {' and '.join(planned)} in {', '.join(other.dc for other in others)}, and the run "
                f"computed on {' and '.join(ran)}: `geotrain profile PLAN --write` there puts "
                "measured times into the job."
            )
        if self.differing:
            said.append(f"The plan that was simulated and the one that ran differ in: {', '.join(self.differing)}.")
        return said

    @cached_property
    def rows(self) -> list[Row]:
        """Actions, then links."""
        simulated, measured = (span_means(side) for side in (self.simulated, self.measured))
        return [
            Row(sort=sort, simulated=simulated.get(sort), measured=measured.get(sort))
            for sort in sorts(self.simulated.plan)
            if sort in simulated or sort in measured
        ]

    def rate(self, spans: Mean | None) -> float | None:
        """Bytes per second of a transfer while it is on its channel."""
        return transfer_bytes(self.measured.plan.job) / spans.held_s if spans and spans.held_s else None

    def size_bytes(self, row: Row) -> float:
        """What a link carries in a step."""
        return row.count * transfer_bytes(self.measured.plan.job) + self._swapped.get(row.sort.ends, 0.0)

    @cached_property
    def _swapped(self) -> dict[tuple[str, str], float]:
        """Between data centers: gradients of a tied embedding, which are part of the all-reduce."""
        swap = Problem(self.measured.plan).swap
        return {} if swap is None else dict.fromkeys(swap.ways(), swap.size_bytes)


def _is_called(device: str, gpu: str) -> bool:
    """Whether a GPU's name as the driver has it, NVIDIA A100-SXM4-80GB, means one of the catalog's, a100-80gb."""
    return gpu.lower().split("-")[0] in re.split(r"[\s_-]+", device.lower())


def _shape(plan: Plan) -> dict[str, Any]:
    """What both sides must have in common for their spans to be compared."""
    return {
        "stages": ", ".join(stage.dc for stage in plan.stages),
        "pipelines": plan.num_pipelines,
        "microbatches": plan.num_microbatches,
    }


def run_comparison_json(comparison: RunComparison) -> dict[str, Any]:
    """The object that `geotrain compare-runs --json` prints. Its names are a contract."""
    simulated, measured = comparison.simulated, comparison.measured
    times_s = [timeline.step_time_s for _, timeline in measured.steady]
    return {
        "step_time_s": {
            "simulated": simulated.step_time_s,
            "measured": measured.step_time_s,
            "measured_lowest": min(times_s),
            "measured_highest": max(times_s),
        },
        "error": comparison.error,
        "steps": len(measured.steady),
        "gpu_utilization": {"simulated": simulated.gpu_utilization, "measured": measured.gpu_utilization},
        "bubble_fraction": {"simulated": 1 - simulated.gpu_utilization, "measured": 1 - measured.gpu_utilization},
        "rows": [_row_json(comparison, row) for row in comparison.rows],
        "plans_differ_in": comparison.differing,
        "other_devices": [asdict(other) for other in comparison.other_devices],
        "warnings": comparison.warnings,
    }


def _row_json(comparison: RunComparison, row: Row) -> dict[str, Any]:
    times = {
        "count": row.count,
        "predicted_s": None if row.simulated is None else row.simulated.span_s,
        "measured_s": None if row.measured is None else row.measured.span_s,
        "ratio": row.ratio,
    }
    if row.sort.kind:
        return {"action": row.sort.kind, **times}
    return {
        "from": row.sort.ends[0],
        "to": row.sort.ends[1],
        **times,
        "bytes": comparison.size_bytes(row),
        "predicted_rate": comparison.rate(row.simulated),
        "measured_rate": comparison.rate(row.measured),
    }


def run_comparison_table(comparison: RunComparison) -> RenderableType:
    """Figures of the step, then actions, then links."""
    actions = [row for row in comparison.rows if row.sort.kind]
    links = [row for row in comparison.rows if not row.sort.kind]
    parts: list[RenderableType] = [
        Text(plan_sentence(comparison.measured.plan), style="bold"),
        Padding(_figures(comparison), (1, 0)),
        _actions(actions),
    ]
    if links:
        parts.append(Padding(_links(comparison, links), (1, 0, 0, 0)))
    parts += [Padding(Text(said, style="yellow"), (1, 0, 0, 0)) for said in comparison.warnings]
    return Group(*parts)


def _figures(comparison: RunComparison) -> Table:
    simulated, measured = comparison.simulated, comparison.measured
    times_s = [timeline.step_time_s for _, timeline in measured.steady]
    table = figure_table("")
    table.add_column("")
    for column in ("simulated", "measured", "error"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("median of")
    note = plural(len(times_s), "step")
    if len(times_s) > 1:
        note += f", {format_seconds(min(times_s))} to {format_seconds(max(times_s))}"
    steps = [format_seconds(side.step_time_s) for side in (simulated, measured)]
    table.add_row("step time", *steps, f"{comparison.error:+.1%}", Text(note, style="dim"))
    used = [side.gpu_utilization for side in (simulated, measured)]
    table.add_row("GPU utilization", *map(percent, used))
    table.add_row("bubbles", *(percent(1 - share) for share in used))
    return table


def _actions(rows: list[Row]) -> Table:
    table = figure_table("Actions, mean; ratio: measured / simulated")
    table.add_column("kind")
    for column in ("number", "simulated", "measured", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.sort.name, f"{row.count:g}", *_times(row))
    return table


def _links(comparison: RunComparison, rows: list[Row]) -> Table:
    table = figure_table("Transfers, mean until arrival; rates while on the wire")
    table.add_column("link", overflow="fold")
    for column in ("bytes", "simulated", "measured", "ratio", "rate, sim.", "rate, meas."):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        rates = [comparison.rate(spans) for spans in (row.simulated, row.measured)]
        size = format_traffic(comparison.size_bytes(row))
        said = ("-" if rate is None else format_rate(rate) for rate in rates)
        table.add_row(Text(row.sort.name), size, *_times(row), *said)
    return table


def _times(row: Row) -> list[str]:
    times = ["-" if spans is None else format_seconds(spans.span_s) for spans in (row.simulated, row.measured)]
    return [*times, "-" if row.ratio is None else f"{row.ratio:.3f}"]
