"""A figure of an experiment as a chart: lines over numbers, bars over words; whiskers from least to most of what was
measured several times."""

import math
from collections.abc import Sequence
from html import escape

from geotrain.reports.charts import STYLE, line_styles, round_ticks
from geotrain.reproduction import Chart, Finding

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 170, 46, 50
_LOG_FROM = 20.0
"""Values that differ by more than this factor are drawn on a log scale."""
_BARS = "\n.whisker { stroke: #1b1f24; } @media (prefers-color-scheme: dark) { .whisker { stroke: #e6e9ee; } }\n"


def points(chart: Chart, findings: Sequence[Finding]) -> dict[str, dict[str, Finding]]:
    """By line and by place: what the chart shows."""
    lines: dict[str, dict[str, Finding]] = {}
    for one in findings:
        if one.figure == chart.figure and chart.over in one.row and chart.where.items() <= one.row.items():
            name = text(one.row[chart.by]) if chart.by else ""
            lines.setdefault(name, {})[text(one.row[chart.over])] = one
    return lines


def text(value: str | float) -> str:
    """A setting's value."""
    return value if isinstance(value, str) else f"{value:g}"


def number(value: float, unit: str = "") -> str:
    """A figure, with four digits at most; a share in percent."""
    if unit == "%":
        return f"{value:.3g}" if value == 0 else f"{value * 100:.3g}%"
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{shown}{unit}" if unit == "x" else f"{shown} {unit}".strip()


def are_long(places: Sequence[str]) -> bool:
    """Words that have no room below a chart: it shows numbers instead."""
    return any(len(place) > 12 for place in places)


def reproduction_svg(chart: Chart, findings: Sequence[Finding]) -> str:
    """A picture of its own; empty where there is nothing to draw."""
    lines = points(chart, findings)
    every = [one for line in lines.values() for one in line.values()]
    if not every:
        return ""
    places = list(dict.fromkeys(text(one.row[chart.over]) for one in every))
    unit = every[0].unit
    title = f"{chart.figure}{f' ({unit})' if unit not in ('', 'x', '%') else ''} over {_words(chart.over)}"
    if chart.where:
        title += ", " + ", ".join(f"{_words(name)} {text(value)}" for name, value in chart.where.items())
    scale = _Scale([value for one in every for value in (one.samples or (one.value,))])
    numeric = all(isinstance(one.row[chart.over], int | float) for one in every)
    body = [f'<text class="head" x="12" y="26">{escape(title)}</text>', *_grid(scale, places, chart.over, unit)]
    for index, (name, line) in enumerate(lines.items()):
        drawn = _line if numeric else _bars
        body += drawn(index, len(lines), line, places, scale)
        if name:
            y = _TOP + 14 + 20 * index
            x = _WIDTH - _RIGHT + 18
            body.append(f'<circle class="p{index}" cx="{x}" cy="{y - 4}" r="4.5"/><text x="{x + 12}" y="{y}">')
            body.append(f"{escape(name)}</text>")
    said = "; ".join(
        f"{f'{name}, ' if name else ''}{_words(chart.over)} {place}: {number(one.value, unit)}"
        for name, line in lines.items()
        for place, one in line.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>"
        f"<style>{STYLE}{line_styles(len(lines))}{_BARS}</style>{''.join(body)}</svg>"
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


class _Scale:
    """From 0, or by factors of ten where values are far apart."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min(values), max(values)
        self.log = low > 0 and high / low > _LOG_FROM
        if self.log:
            first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
            self.ticks = [10.0**power for power in range(first, last + 1)]
        else:
            self.ticks = round_ticks(max(high, 0.0))

    def y(self, value: float) -> float:
        first, last = self.ticks[0], self.ticks[-1]
        share = math.log(value / first) / math.log(last / first) if self.log else value / last
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _x(place: str, places: Sequence[str]) -> float:
    step = (_WIDTH - _LEFT - _RIGHT) / len(places)
    return _LEFT + step * (places.index(place) + 0.5)


def _grid(scale: _Scale, places: Sequence[str], name: str, unit: str) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick in scale.ticks:
        y, said = scale.y(tick), number(tick, unit if unit == "%" else "")
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{said}</text>')
    for index, place in enumerate(places):
        said = str(index + 1) if are_long(places) else place
        where = f'x="{_x(place, places):.1f}" y="{bottom + 18}" text-anchor="middle"'
        parts.append(f'<text class="quiet" {where}>{escape(said)}</text>')
    where = f'x="{(_LEFT + right) / 2:.1f}" y="{bottom + 40}" text-anchor="middle"'
    return [*parts, f'<text class="quiet" {where}>{escape(_words(name))}</text>']


def _line(index: int, _: int, line: dict[str, Finding], places: Sequence[str], scale: _Scale) -> list[str]:
    spots = [(_x(place, places), scale.y(one.value), one) for place, one in line.items()]
    parts = [f'<polyline class="l{index}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in spots)}"/>']
    for x, y, one in spots:
        parts.append(_whisker(one, x, scale))
        said = number(one.value, one.unit)
        parts.append(f'<circle class="p{index}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{said}</title></circle>')
    return parts


def _bars(index: int, lines: int, line: dict[str, Finding], places: Sequence[str], scale: _Scale) -> list[str]:
    width = (_WIDTH - _LEFT - _RIGHT) / len(places) * 0.8 / lines
    bottom, parts = _HEIGHT - _BOTTOM, []
    for place, one in line.items():
        x = _x(place, places) + (index - lines / 2) * width
        y = min(scale.y(one.value), bottom)
        said = f"{place}: {number(one.value, one.unit)}"
        parts.append(
            f'<rect class="p{index}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{bottom - y:.1f}">'
            f"<title>{escape(said)}</title></rect>{_whisker(one, x + width / 2, scale)}"
        )
    return parts


def _whisker(one: Finding, x: float, scale: _Scale) -> str:
    if not one.samples:
        return ""
    low, high = scale.y(min(one.samples)), scale.y(max(one.samples))
    return f'<line class="whisker" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>'
