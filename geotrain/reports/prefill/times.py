"""Prefill times, predicted against measured, as table and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geotrain.prefill.calibration import Calibrated, Calibration
from geotrain.prefill.predictor import Point
from geotrain.reports.textbars import figure_table
from geotrain.reports.words import percent
from geotrain.units import format_seconds, plural

_LIKELY = 0.95


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A point: the median of its measurements against the prediction."""

    point: Point
    measured_s: float
    predicted_s: float
    held_out_s: float | None

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def held_out_error(self) -> float | None:
        return None if self.held_out_s is None else self.held_out_s / self.measured_s - 1


def calibration_json(found: Sequence[Calibrated]) -> dict[str, Any]:
    """The object that `geotrain prefill calibrate --json` prints."""
    return {
        "calibrations": [
            one.calibration.model_dump(mode="json")
            | {
                "points": [
                    {
                        "new_tokens": line.point[0],
                        "cached_tokens": line.point[1],
                        "measured_s": line.measured_s,
                        "predicted_s": line.predicted_s,
                        "error": line.error,
                        "held_out_error": line.held_out_error,
                    }
                    for line in _lines(one)
                ]
            }
            for one in found
        ]
    }


def calibration_table(found: Sequence[Calibrated]) -> RenderableType:
    """Point by point, and what was fitted; fits 80 columns."""
    parts: list[RenderableType] = []
    for one in found:
        parts += [_points(one), Text(_words(one.calibration), style="dim"), Text()]
    held_out = Text("errors of points held out: each predicted by a fit without it", style="dim")
    sources = dict.fromkeys(f"source: {one.calibration.source}" for one in found)
    return Group(*parts, _summary(found), Text(), held_out, *(Text(source, style="dim") for source in sources))


def _points(one: Calibrated) -> Table:
    table = figure_table(_name(one.calibration))
    for column in ("new tokens", "cached", "measured", "predicted", "error", "held out"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in _lines(one):
        new, cached = line.point
        held_out = "-" if line.held_out_error is None else f"{line.held_out_error:+.1%}"
        times_s = format_seconds(line.measured_s), format_seconds(line.predicted_s)
        table.add_row(f"{new:,}", f"{cached:,}", *times_s, Text(f"{line.error:+.1%}", _colour(line.error)), held_out)
    return table


def _summary(found: Sequence[Calibrated]) -> Table:
    table = figure_table("")
    table.add_column(plural(len(found), "fit"), overflow="fold")
    for column in ("rows", "mean error", "worst", f"{_LIKELY:.0%} within"):
        table.add_column(column, justify="right", no_wrap=True)
    for calibration in (one.calibration for one in found):
        error = calibration.error
        errors = ("-", "-") if error is None else (percent(error.mean), percent(error.worst))
        within = f"{calibration.time.factor(_LIKELY):.2f} x"
        table.add_row(_name(calibration), str(calibration.rows), *errors, within)
    return table


def _words(calibration: Calibration) -> str:
    terms = {
        "fixed_s": "",
        "per_cached_s": " per cached token",
        "per_token_s": " per token",
        "per_pair_s": " per (2 cached + new) x new",
    }
    told = [format_seconds(getattr(calibration, term)) + what for term, what in terms.items()
            if term not in calibration.unknown]  # fmt: skip
    unknown = f"; not to be told from these rows: {', '.join(calibration.unknown)}" if calibration.unknown else ""
    return " + ".join(told) + unknown


def _lines(one: Calibrated) -> list[_Line]:
    return [
        _Line(
            point=point,
            measured_s=measured_s,
            predicted_s=one.calibration.time.seconds(*point),
            held_out_s=one.fit.held_out_s.get(point),
        )
        for point, measured_s in one.fit.measured_s.items()
    ]


def _name(calibration: Calibration) -> str:
    several = f" x {calibration.tensor_parallel}" if calibration.tensor_parallel > 1 else ""
    return f"{calibration.model} on {calibration.gpu}{several}"


def _colour(error: float) -> str:
    return "green" if abs(error) < 0.1 else "yellow" if abs(error) < 0.25 else "red"
