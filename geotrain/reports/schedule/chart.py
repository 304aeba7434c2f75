"""Step times of schedules side by side, as bars."""

import math
from collections.abc import Sequence
from html import escape

from geotrain.reports.charts import STYLE, LinearScale
from geotrain.reports.schedule.comparison import ComparisonRow, best_first
from geotrain.units import format_seconds

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _BOTTOM = 860, 270, 150, 64, 30, 52
_LOG_FROM = 20.0
"""A spread of step times above this is drawn on a log scale, so that fast rows stay visible."""


def comparison_svg(rows: Sequence[ComparisonRow]) -> str:
    """Step times as horizontal bars, best first; a file of its own."""
    ordered = best_first(rows)
    times = [row.step_time_s for row in ordered]
    slowest = max(times, default=1.0) or 1.0
    fastest = min((time for time in times if time > 0), default=slowest)
    scale = _LogScale(fastest, slowest) if slowest / fastest > _LOG_FROM else LinearScale(slowest)
    height = _TOP + _ROW * len(ordered) + _BOTTOM
    bottom = _TOP + _ROW * len(ordered)
    body = [f'<text class="head" x="16" y="30">{escape("Step time, best first")}</text>']
    for tick in scale.ticks():
        said = format_seconds(tick) if tick > 0 else "0"
        x = _LEFT + scale.place(tick) * (_WIDTH - _LEFT - _RIGHT)
        body.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}"/>')
        body.append(f'<text class="quiet" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{said}</text>')
    body.append(
        f'<text class="quiet" x="{_LEFT + (_WIDTH - _LEFT - _RIGHT) / 2:.1f}" y="{bottom + 40}" '
        f'text-anchor="middle">{scale.label}</text>'
    )
    body += [_comparison_bar(index, row, scale) for index, row in enumerate(ordered)]
    said = "; ".join(f"{_name(row)}: {format_seconds(row.step_time_s)}" for row in ordered)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}"><title>Step time by schedule, connections and sharing</title>'
        f"<desc>{escape(said)}</desc><style>{STYLE}</style>{''.join(body)}</svg>\n"
    )


def _name(row: ComparisonRow) -> str:
    return f"{row.schedule}, {row.connections} conn., {row.sharing}"


def _comparison_bar(index: int, row: ComparisonRow, scale: "LinearScale | _LogScale") -> str:
    y = _TOP + _ROW * index
    width = max(1.0, scale.place(row.step_time_s) * (_WIDTH - _LEFT - _RIGHT))
    colour = "best" if index == 0 else "bar"
    return (
        f'<text x="{_LEFT - 10}" y="{y + 18}" text-anchor="end">{escape(_name(row))}</text>'
        f'<rect class="{colour}" x="{_LEFT}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 10}" rx="2"/>'
        f'<text x="{_LEFT + width + 8:.1f}" y="{y + 18}">{format_seconds(row.step_time_s)}'
        f' <tspan class="quiet">{row.speedup:.3g}x</tspan></text>'
    )


class _LogScale:
    """Whole decades; a bar starts at the decade below the fastest."""

    label = "step time (logarithmic scale: each line is 10 times the one before)"

    def __init__(self, fastest: float, slowest: float) -> None:
        self._low = math.floor(math.log10(fastest) - 0.2)
        self._high = math.log10(slowest)

    def place(self, time_s: float) -> float:
        if time_s <= 0:
            return 0.0
        return max(0.0, (math.log10(time_s) - self._low) / (self._high - self._low))

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, math.floor(self._high) + 1)]
