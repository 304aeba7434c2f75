"""What `geotrain simulate` shows in a terminal: figures, where the time went, stages, links. Fits 80 columns."""

from dataclasses import dataclass
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geotrain.reports.textbars import bar, figure_table, headline_table, stacked
from geotrain.reports.words import gains, headline, money, percent, plan_sentence, shares, used_of_limit
from geotrain.simulation.result import Result, StageMemory
from geotrain.units import format_rate, format_traffic

_STYLES = {
    "forward": "black on bright_blue",
    "recompute": "black on bright_cyan",
    "backward": "black on yellow",
    "optimizer": "black on green",
    "all_reduce": "black on magenta",
    "wan": "white on red",
    "fabric": "black on bright_red",
    "pipeline": "dim",
}
_BAR_WIDTH = 72
_MOST_STAGES = 20
"""With more stages than this, neighbours of the same make share a row."""


def summary_table(result: Result) -> RenderableType:
    """Everything a person wants to know about a step, top down."""
    parts: list[RenderableType] = [
        Text(plan_sentence(result.plan), style="bold"),
        Padding(headline_table(headline(result)), (1, 0, 0, 0)),
        Padding(_time(result), (1, 0, 0, 0)),
        Padding(_stages(result), (1, 0, 0, 0)),
    ]
    if result.links:
        parts.append(Padding(_links(result), (1, 0, 0, 0)))
    if result.gains:
        parts.append(Padding(_gains(result), (1, 0, 0, 0)))
    return Group(*parts)


def _gains(result: Result) -> Table:
    table = figure_table("What each idea of the search brought")
    table.add_column("idea")
    for column in ("step", "x bound", "shorter by"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in gains(result):
        table.add_row(*row)
    return table


def _time(result: Result) -> RenderableType:
    entries = shares(result.shares)
    legend = Table.grid(padding=(0, 1))
    for _ in range(2):
        legend.add_column(no_wrap=True)
        legend.add_column(no_wrap=True, min_width=24)
        legend.add_column(no_wrap=True, justify="right", min_width=6)
        legend.add_column(min_width=2)
    half = (len(entries) + 1) // 2
    for left, right in zip(entries[:half], entries[half:], strict=True):
        row: list[RenderableType] = []
        for entry in (left, right):
            row += [Text(entry.letter, _STYLES[entry.key]), entry.label, percent(entry.value), ""]
        legend.add_row(*row)
    line = stacked([(entry.letter, entry.value, _STYLES[entry.key]) for entry in entries], _BAR_WIDTH)
    return Group(Text("Where the GPUs' time went", style="bold"), line, legend)


@dataclass(frozen=True, kw_only=True)
class _StageRow:
    """Neighbouring stages of the same make, or a single one."""

    first: int
    last: int
    dc: str
    layers: int
    gpu: str
    busy: tuple[float, float]
    memory: StageMemory
    """Of the fullest."""
    in_flight: tuple[float, float]


def _stage_rows(result: Result) -> list[_StageRow]:
    plan = result.plan
    busy = (result.timeline.busy_s.mean(axis=0) / result.step_time_s).tolist()
    merge = len(plan.stages) > _MOST_STAGES

    def make(stage: int) -> tuple[object, ...]:
        return (plan.stages[stage].dc, plan.stages[stage].layers) if merge else (stage,)

    rows = []
    for _, group in groupby(range(len(plan.stages)), key=make):
        stages = list(group)
        memory = [result.memory[stage] for stage in stages]
        held = [one.in_flight for one in memory]
        rows.append(
            _StageRow(
                first=stages[0],
                last=stages[-1],
                dc=plan.stages[stages[0]].dc,
                layers=plan.stages[stages[0]].layers,
                gpu=plan.datacenter_of(stages[0]).gpu.name,
                busy=(min(busy[stage] for stage in stages), max(busy[stage] for stage in stages)),
                memory=max(memory, key=lambda one: one.total_bytes),
                in_flight=(min(held), max(held)),
            )
        )
    return rows


def _stages(result: Result) -> Table:
    table = figure_table("Stages")
    table.add_column("stage", no_wrap=True)
    table.add_column("data center", max_width=13, overflow="ellipsis")
    table.add_column("layers", justify="right", no_wrap=True)
    table.add_column("GPU", max_width=10, overflow="ellipsis")
    table.add_column("busy", justify="right", no_wrap=True)
    table.add_column("memory", no_wrap=True)
    table.add_column("in flight", justify="right", no_wrap=True)
    for row in _stage_rows(result):
        table.add_row(
            _range(str(row.first), str(row.last)),
            Text(row.dc),
            str(row.layers),
            Text(row.gpu),
            _range(f"{row.busy[0]:.0%}", f"{row.busy[1]:.0%}").replace("%-", "-"),
            _memory(row.memory),
            _range(f"{row.in_flight[0]:.3g}", f"{row.in_flight[1]:.3g}"),
        )
    return table


def _memory(memory: StageMemory) -> Text:
    fraction = memory.total_bytes / memory.limit_bytes if memory.limit_bytes > 0 else 0.0
    style = "red" if fraction > 1 else "yellow" if fraction > 0.9 else "green"
    return bar(fraction, 7, style) + Text(f" {used_of_limit(memory)}")


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def _links(result: Result) -> Table:
    table = figure_table("WAN links, per step")
    table.add_column("direction", max_width=28, overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("busy", justify="right", no_wrap=True)
    table.add_column("rate of a pair", justify="right", no_wrap=True)
    table.add_column("connections", justify="right", no_wrap=True)
    priced = any(link.cost > 0 for link in result.links)
    if priced:
        table.add_column("cost", justify="right", no_wrap=True)
    for link in result.links:
        cost = [money(link.cost)] if priced else []
        table.add_row(
            Text(f"{link.source} → {link.target}"),
            format_traffic(link.size_bytes),
            f"{link.busy_fraction:.0%}",
            format_rate(link.rate),
            str(link.connections),
            *cost,
        )
    return table
