"""Schedules side by side: the rows of `geotrain compare`, and their table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geotrain.reports.textbars import bar, figure_table
from geotrain.reports.words import percent
from geotrain.simulation import Result, Variant
from geotrain.units import format_seconds, plural


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """One way to run the same job on the same cluster."""

    schedule: str
    connections: int
    """TCP connections per pair."""
    sharing: str
    step_time_s: float
    gpu_utilization: float
    step_over_bound: float
    speedup: float
    """Against the slowest row."""


Infeasible = tuple[str, int, str, str]
"""Schedule, connections, sharing, and the reason why it cannot run."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All ways that were tried."""

    rows: list[ComparisonRow]
    """Best first."""
    infeasible: list[Infeasible]


def compared(variants: Sequence[Variant]) -> Comparison:
    """The figures of what ran, and the reasons of what did not."""
    steps = [(v, v.outcome) for v in variants if isinstance(v.outcome, Result)]
    slowest = max((result.step_time_s for _, result in steps), default=0.0)
    rows = [
        ComparisonRow(
            schedule=variant.schedule,
            connections=variant.connections,
            sharing=variant.sharing,
            step_time_s=result.step_time_s,
            gpu_utilization=result.gpu_utilization,
            step_over_bound=result.step_over_bound,
            speedup=slowest / result.step_time_s if result.step_time_s else 1.0,
        )
        for variant, result in steps
    ]
    infeasible: list[Infeasible] = [
        (v.schedule, v.connections, v.sharing, str(v.outcome)) for v in variants if not isinstance(v.outcome, Result)
    ]
    return Comparison(rows=best_first(rows), infeasible=infeasible)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The object that `geotrain compare --json` prints. Its names are a contract."""
    names = ("schedule", "connections", "sharing", "reason")
    return {
        "rows": [asdict(row) for row in comparison.rows],
        "infeasible": [dict(zip(names, entry, strict=True)) for entry in comparison.infeasible],
    }


def best_first(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """By step time; equal ones by name, so that the order never depends on how rows were made."""
    return sorted(rows, key=lambda row: (row.step_time_s, row.schedule, row.connections, row.sharing))


def comparison_table(rows: Sequence[ComparisonRow], infeasible: Sequence[Infeasible]) -> RenderableType:
    """The rows, best first, and below them what cannot run and why. Fits 80 columns.

    Schedules that are the same for this plan share a row.
    """
    parts: list[RenderableType] = []
    if rows:
        parts.append(_feasible(best_first(rows)))
    if infeasible:
        parts += [Text("\nCannot run", style="bold"), _infeasible(infeasible)]
    return Group(*parts)


def _feasible(rows: list[ComparisonRow]) -> Table:
    table = figure_table("")
    table.add_column("schedule", no_wrap=True)
    table.add_column("conn", justify="right", no_wrap=True)
    table.add_column("sharing", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("busy", justify="right", no_wrap=True)
    table.add_column("x bound", justify="right", no_wrap=True)
    table.add_column("speedup", justify="right", no_wrap=True)
    slowest = rows[-1].step_time_s
    alike: dict[tuple[int, str, float, float], list[ComparisonRow]] = {}
    for row in rows:
        alike.setdefault((row.connections, row.sharing, row.step_time_s, row.gpu_utilization), []).append(row)
    for index, same in enumerate(alike.values()):
        row = same[0]
        table.add_row(
            Text(",\n".join(one.schedule for one in same)),
            str(row.connections),
            Text(row.sharing),
            format_seconds(row.step_time_s),
            bar(row.step_time_s / slowest if slowest > 0 else 0.0, 10, "green" if index == 0 else "blue"),
            percent(row.gpu_utilization),
            f"{row.step_over_bound:.2f}",
            f"{row.speedup:.2f}x",
            style="bold" if index == 0 else None,
        )
    return table


def _infeasible(entries: Sequence[Infeasible]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    ways: dict[tuple[str, str], int] = {}
    for schedule, _, _, reason in entries:
        ways[schedule, reason] = ways.get((schedule, reason), 0) + 1
    for (schedule, reason), number in ways.items():
        table.add_row(Text(f"{schedule}, {plural(number, 'way')}", style="dim"), Text(reason))
    return table
