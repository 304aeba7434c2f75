"""Predicted against measured as table and JSON."""

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geotrain.reports.textbars import figure_table
from geotrain.reports.words import percent
from geotrain.units import format_seconds, plural
from geotrain.validation import Calibration, Score, Validation
from geotrain.workload import Efficiency


def validation_json(validation: Validation, calibration: Calibration | None) -> dict[str, Any]:
    """The object that `geotrain validate --json` prints. Its names are a contract."""
    rows: list[dict[str, Any]] = [
        {
            "name": compared.row.name,
            "published_s": compared.row.seconds,
            "predicted_s": compared.predicted_s,
            "error": compared.error,
            "trivial_s": compared.trivial_s,
            "trivial_error": compared.trivial_error,
            "source": compared.row.source,
        }
        for compared in validation.rows
    ]
    answer: dict[str, Any] = {"rows": rows} | asdict(validation.score)
    answer["trivial"] = asdict(validation.trivial) | {"efficiency": validation.trivial_efficiency}
    if calibration is not None:
        for row, fitted_s in zip(rows, calibration.predicted_s, strict=True):
            row["calibrated_s"] = fitted_s
            row["calibrated_error"] = fitted_s / row["published_s"] - 1
        answer["calibration"] = {
            "efficiency": calibration.efficiency.model_dump(),
            "before": asdict(calibration.before),
            "after": asdict(calibration.after),
            "cross_validated": calibration.cross_validated and asdict(calibration.cross_validated),
        }
    return answer


def validation_table(validation: Validation, calibration: Calibration | None, *, seconds: str) -> RenderableType:
    """Row by row, in all, and where the figures come from; `seconds` names the column. Fits 80 columns."""
    sources = list(dict.fromkeys(compared.row.source for compared in validation.rows))
    parts: list[RenderableType] = [_rows(validation, calibration, sources, seconds), Text(), _scores(validation)]
    if calibration is not None:
        parts += [Text(), _calibration(calibration), Text(_figures(calibration.efficiency), style="dim")]
    parts += [Text(), Text(_trivial(validation), style="dim")]
    parts += [Text(f"[{number + 1}] {source}", style="dim") for number, source in enumerate(sources)]
    return Group(*parts)


def _rows(validation: Validation, calibration: Calibration | None, sources: list[str], seconds: str) -> Table:
    table = figure_table("")
    table.add_column("run", overflow="fold")
    for column in (f"{seconds} s", "predicted s", "error", *(["fitted"] if calibration else []), "trivial"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for index, compared in enumerate(validation.rows):
        fitted = [calibration.predicted_s[index] / compared.row.seconds - 1] if calibration else []
        table.add_row(
            Text(compared.row.name),
            _seconds(compared.row.seconds),
            _seconds(compared.predicted_s),
            Text(_signed(compared.error), style=_colour(compared.error)),
            *(_signed(error) for error in fitted),
            Text(_signed(compared.trivial_error), style="dim"),
            Text(f"[{sources.index(compared.row.source) + 1}]", style="dim"),
        )
    return table


def _scores(validation: Validation) -> Table:
    table = figure_table("")
    _score_columns(table, plural(len(validation.rows), "row"))
    table.add_row("predicted", *_score(validation.score), style="bold")
    table.add_row("trivial", *_score(validation.trivial))
    return table


def _score_columns(table: Table, first: str) -> None:
    table.add_column(first, no_wrap=True)
    for column in ("mean error", "median", "worst", "rank correlation"):
        table.add_column(column, justify="right", no_wrap=True)


def _trivial(validation: Validation) -> str:
    share = percent(validation.trivial_efficiency)
    return f"trivial: FLOPs x (1 + (P - 1) / M) at {share} of peak, which is fitted to these very rows"


def _score(score: Score) -> list[str]:
    order = "-" if score.rank_correlation != score.rank_correlation else f"{score.rank_correlation:.4f}"
    return [*map(percent, (score.mean_abs_error, score.median_abs_error, score.worst_abs_error)), order]


def _calibration(calibration: Calibration) -> Table:
    table = figure_table("Fitted rule")
    _score_columns(table, "")
    table.add_row("before", *_score(calibration.before))
    table.add_row("after, on the same rows", *_score(calibration.after))
    if calibration.cross_validated is not None:
        table.add_row("after, each row held out", *_score(calibration.cross_validated), style="bold")
    return table


def _figures(rule: Efficiency) -> str:
    shares = f"matmul {percent(rule.matmul)}, memory {percent(rule.memory)}, nvlink {percent(rule.nvlink)}"
    return f"{shares}, exchange {format_seconds(rule.exchange_s)}, launch {format_seconds(rule.launch_s)}"


def _seconds(time_s: float) -> str:
    """Four digits, with the zeros that a column needs to line up."""
    return f"{time_s:#.4g}".rstrip(".")


def _signed(error: float) -> str:
    return f"{error:+.1%}"


def _colour(error: float) -> str:
    return "green" if abs(error) < 0.1 else "yellow" if abs(error) < 0.25 else "red"
