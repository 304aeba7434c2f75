"""The rows of a what-if: as a table, as JSON and as CSV."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from geotrain.planner.whatif import Found, NothingFits, Row
from geotrain.reports.textbars import figure_table
from geotrain.reports.words import count, money
from geotrain.units import format_seconds, plural

_FIGURES = [name for name in Found.__dataclass_fields__ if name not in ("datacenters", "choices")]


def whatif_json(rows: Sequence[Row], sentence: str) -> dict[str, Any]:
    """The object that `geotrain whatif --json` prints. Its names are a contract; numbers are SI."""
    return {"varied": varied(rows), "rows": [_entry(row, rows) for row in rows], "answer": sentence or None}


def whatif_csv(rows: Sequence[Row]) -> str:
    """The same rows as text; what is unlimited, or does not fit, is empty."""
    text = io.StringIO()
    columns = [*varied(rows), "relative", *_FIGURES, "datacenters", "reason"]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        entry = _entry(row, rows)
        entry["datacenters"] = " + ".join(f"{name}: {gpus}" for name, gpus in (entry["datacenters"] or {}).items())
        writer.writerow(entry)
    return text.getvalue()


def varied(rows: Sequence[Row]) -> list[str]:
    """What was varied, by its path."""
    return [setting.name for setting in rows[0].point.settings] if rows else []


def relative(row: Row, rows: Sequence[Row]) -> float | None:
    """Tokens per second against the first row that fits."""
    first = next((other.outcome for other in rows if isinstance(other.outcome, Found)), None)
    if first is None or not isinstance(row.outcome, Found):
        return None
    return row.outcome.tokens_per_s / first.tokens_per_s


def _entry(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    entry: dict[str, Any] = {setting.name: setting.plain for setting in row.point.settings}
    entry["relative"] = relative(row, rows)
    fits = isinstance(row.outcome, Found)
    entry |= (
        {name: value for name, value in asdict(row.outcome).items() if name != "choices"}
        if fits
        else dict.fromkeys([*_FIGURES, "datacenters"])
    )
    entry["reason"] = row.outcome.reason if isinstance(row.outcome, NothingFits) else None
    return entry


def whatif_table(rows: Sequence[Row], sentence: str) -> RenderableType:
    """A row for each point, below them why some do not fit, and the answer."""
    if not rows:
        return Text("nothing is done yet")
    parts: list[RenderableType] = [_Figures(rows)]
    if any(isinstance(row.outcome, Found) for row in rows):
        parts.append(Text("\nlayout: GPUs of a stage x stages x pipelines", style="dim"))
    if any(isinstance(row.outcome, NothingFits) for row in rows):
        parts += [Text("\nNothing fits", style="bold"), _reasons(rows)]
    if sentence:
        parts.append(Text(f"\n{sentence}", style="bold"))
    return Group(*parts)


class _Figures:
    """A column for everything where there is room for it; else the plan's words share one."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        found = [row.outcome for row in rows if isinstance(row.outcome, Found)]
        self.priced = any(outcome.cost_per_billion_tokens > 0 for outcome in found)
        self.fastest = max((outcome.tokens_per_s for outcome in found), default=0.0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = self._table(["data centers", "layout", "schedule", "across"], ["binds"], _wide)
        if Measurement.get(console, options.update(max_width=1000), wide).maximum <= options.max_width:
            yield wide
        else:
            yield self._table([], ["data centers, layout; binds"], _narrow)

    def _table(
        self, before: list[str], after: list[str], words: Callable[[Found], tuple[list[str], list[str]]]
    ) -> Table:
        table = figure_table("")
        for name in short_names(varied(self.rows)):
            table.add_column(name, justify="right", no_wrap=True)
        for name in before:
            table.add_column(name, no_wrap=True)
        for name in ("step", "tokens/s", "relative", *(["cost/B"] if self.priced else [])):
            table.add_column(name, justify="right", no_wrap=True)
        for name in after:
            table.add_column(name, overflow="fold")
        for row in self.rows:
            settings = [Text(setting.text) for setting in row.point.settings]
            found = row.outcome
            if isinstance(found, NothingFits):
                table.add_row(*settings, *(Text("-", style="dim") for _ in table.columns[len(settings) :]))
                continue
            left, right = words(found)
            figures = [
                format_seconds(found.step_time_s),
                count(found.tokens_per_s),
                f"{relative(row, self.rows):.2f}x",
                *([money(found.cost_per_billion_tokens)] if self.priced else []),
            ]
            style = "bold" if found.tokens_per_s == self.fastest else None
            table.add_row(*settings, *map(Text, [*left, *figures, *right]), style=style)
        return table


def _wide(found: Found) -> tuple[list[str], list[str]]:
    layout = f"{found.tensor_parallel} x {found.stages} x {found.pipelines}"
    return [_datacenters(found), layout, found.schedule, found.across], [_short_binding(found.binding)]


def _narrow(found: Found) -> tuple[list[str], list[str]]:
    (used, layout, schedule, across), (binding,) = _wide(found)
    way = "" if across == "none" else f" {across} across,"
    return [], [f"{used},{way} {layout.replace(' ', '')} {schedule}; {binding}"]


def _datacenters(found: Found) -> str:
    return " + ".join(f"{name} {gpus}" for name, gpus in found.datacenters.items())


def _reasons(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    points: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row.outcome, NothingFits):
            said = ", ".join(setting.text for setting in row.point.settings)
            points.setdefault(row.outcome.reason, []).append(said)
    for reason, where in points.items():
        who = where[0] if len(where) == 1 else f"{where[0]} and {plural(len(where) - 1, 'other')}"
        table.add_row(Text(who, style="dim"), Text(reason))
    return table


def short_names(paths: Sequence[str]) -> list[str]:
    """Paths without what every reader knows, as long as they stay different: south.nodes, rtt, global batch."""
    short = [
        re.sub(r"^(cluster\.)?(wan\.default\.|wan\.links\.|datacenters\.|job\.)?", "", path).replace("_", " ")
        for path in paths
    ]
    return short if len(set(short)) == len(short) else list(paths)


_SHORT = {
    "bytes over the WAN from": "WAN",
    "compute of stage": "compute, stage",
    "one microbatch's way through the pipeline and back": "one microbatch's way",
    ", in rounds that memory allows": ", memory",
}


def _short_binding(binding: str) -> str:
    for long, short in _SHORT.items():
        binding = binding.replace(long, short)
    return binding
