"""Predicted against measured step times as a picture: both on a log scale, perfect is the diagonal."""

import math
from html import escape

from geotrain.reports.charts import STYLE
from geotrain.reports.words import percent
from geotrain.units import format_seconds
from geotrain.validation import Compared, Validation

_WIDTH, _HEIGHT = 860, 620
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 40, 92, 70
_BAND = 0.1
_LOOK = """
.band { fill: #4a8fdb; opacity: 0.12; }
.even { stroke: #57606a; stroke-width: 1.5; }
.ours { fill: #2f9e62; stroke: #ffffff; stroke-width: 1; }
.trivial { fill: none; stroke: #b35900; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  .even { stroke: #a3adba; }
  .ours { fill: #46b87a; stroke: #14171c; }
  .trivial { stroke: #e0954f; }
}
"""


class _Axes:
    """Seconds to places, the same way on both axes."""

    def __init__(self, times: list[float]) -> None:
        low, high = math.log10(min(times)), math.log10(max(times))
        margin = max(0.1, (high - low) * 0.05)
        self.low, self.high = low - margin, high + margin

    def x(self, time_s: float) -> float:
        """From the left edge."""
        return _LEFT + self._share(time_s) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, time_s: float) -> float:
        """From the top edge."""
        return _HEIGHT - _BOTTOM - self._share(time_s) * (_HEIGHT - _TOP - _BOTTOM)

    def _share(self, time_s: float) -> float:
        share = (math.log10(time_s) - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    def ticks(self) -> list[float]:
        """1, 2 and 5 of every decade, or whole decades where those would crowd."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        steps = (1, 2, 5) if self.high - self.low < 3 else (1,)
        ticks = [step * 10.0**power for power in powers for step in steps]
        return [tick for tick in ticks if self.low <= math.log10(tick) <= self.high]


def validation_svg(validation: Validation, *, seconds: str) -> str:
    """A file of its own; `seconds` says what the runs' own times are: published or measured."""
    rows = validation.rows
    axes = _Axes([time for row in rows for time in (row.row.seconds, row.predicted_s, row.trivial_s)])
    body = [
        '<text class="head" x="16" y="30">Predicted against ' + escape(seconds) + " step time</text>",
        *_legend(validation),
        *_grid(axes, seconds),
        *(_point(axes, row, row.trivial_s, row.trivial_error, "trivial") for row in rows),
        *(_point(axes, row, row.predicted_s, row.error, "ours") for row in rows),
    ]
    said = "; ".join(
        f"{row.row.name}: {seconds} {format_seconds(row.row.seconds)}, predicted {format_seconds(row.predicted_s)}"
        for row in rows
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}"><title>Predicted against {escape(seconds)} step time</title>'
        f"<desc>{escape(said)}</desc><style>{STYLE}{_LOOK}</style>{''.join(body)}</svg>\n"
    )


def _legend(validation: Validation) -> list[str]:
    entries = [("ours", "geotrain", validation.score), ("trivial", "trivial model", validation.trivial)]
    parts = []
    for number, (look, name, score) in enumerate(entries):
        x = 24 + 330 * number
        parts.append(f'<circle class="{look}" cx="{x}" cy="58" r="6"/>')
        parts.append(
            f'<text x="{x + 14}" y="63">{name} <tspan class="quiet">mean error {percent(score.mean_abs_error)}'
            "</tspan></text>"
        )
    return parts


def _grid(axes: _Axes, seconds: str) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick in axes.ticks():
        x, y, said = axes.x(tick), axes.y(tick), _said(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{said}</text>')
        parts.append(f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{said}</text>')
    low, high = 10**axes.low, 10**axes.high
    corners = [
        (low / (1 - _BAND), low), (high, high * (1 - _BAND)), (high, high), (high / (1 + _BAND), high),
        (low, low * (1 + _BAND)), (low, low),
    ]  # fmt: skip
    outline = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in corners)
    parts.append(f'<polygon class="band" points="{outline}"/>')
    parts.append(f'<line class="even" x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{_TOP}"/>')
    middle_x, middle_y = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(f'<text class="quiet" x="{middle_x}" y="{bottom + 44}" text-anchor="middle">{escape(seconds)}</text>')
    parts.append(
        f'<text class="quiet" x="22" y="{middle_y}" text-anchor="middle" transform="rotate(-90 22 {middle_y})">'
        "predicted</text>"
    )
    parts.append(
        f'<text class="quiet" x="{right}" y="{bottom + 44}" text-anchor="end">'
        f"shaded: within {_BAND:.0%}; both axes logarithmic</text>"
    )
    return parts


def _said(tick: float) -> str:
    """Round numbers of seconds stay round: 100 s, not minutes."""
    return f"{tick:g} s" if tick >= 1 else format_seconds(tick)


def _point(axes: _Axes, compared: Compared, time_s: float, error: float, look: str) -> str:
    x, y = axes.x(compared.row.seconds), axes.y(time_s)
    said = f"{compared.row.name}: {format_seconds(time_s)}, {error:+.1%}"
    return f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(said)}</title></circle>'
