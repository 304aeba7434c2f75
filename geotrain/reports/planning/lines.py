"""The rows of a what-if as lines: tokens per second over what was varied first, a line for each of the rest."""

import math
from collections.abc import Sequence
from html import escape

from geotrain.planner.whatif import Found, NothingFits, Row, Setting
from geotrain.reports.charts import STYLE, line_styles, round_ticks
from geotrain.reports.planning.whatif import short_names
from geotrain.reports.words import count
from geotrain.units import format_seconds

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 40, 64, 70
_LEGEND = 190
_LOG_FROM = 20.0
"""Values that differ by more than this factor are drawn on a log scale."""
_LETTER = 6.6
"""Width of a letter of a label, in pixels."""


def whatif_svg(rows: Sequence[Row]) -> str:
    """A file of its own."""
    lines = _lines(rows)
    right = _WIDTH - _RIGHT - (_LEGEND if len(lines) > 1 else 0)
    places = _places([row.point.settings[0] for row in rows], right)
    fastest = max((row.outcome.tokens_per_s for row in rows if isinstance(row.outcome, Found)), default=0.0)
    ticks = round_ticks(fastest)
    top = ticks[-1]
    name = rows[0].point.settings[0].name if rows else ""
    name = name if "." in name else name.replace("_", " ")
    title = f"Tokens per second over {name}"
    body = [f'<text class="head" x="16" y="30">{escape(title)}</text>', *_grid(places, ticks, right, name)]
    for number, line in enumerate(lines.values()):
        body += _line(number, line, places, top)
    if len(lines) > 1:
        body += _legend(lines, rows[0].point.settings[1:], right)
    said = "; ".join(_said(row) for row in rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}"><title>{escape(title)}</title>'
        f"<desc>{escape(said)}</desc><style>{STYLE}{line_styles(len(lines))}</style>{''.join(body)}</svg>\n"
    )


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by everything but the first thing varied."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(", ".join(setting.text for setting in row.point.settings[1:]), []).append(row)
    return lines


def _places(settings: Sequence[Setting], right: float) -> dict[str, float]:
    """From the text of a value to its x: by size where all are numbers, else side by side. Unlimited is rightmost."""
    plain = {setting.text: setting.plain for setting in settings}
    numbers = {text: float(value) for text, value in plain.items() if isinstance(value, int | float)}
    first, last = _LEFT + 24.0, right - 24.0
    others = [text for text in plain if text not in numbers]
    if len(numbers) < 2 or any(plain[text] is not None for text in others) or len(others) > 1:
        step = (last - first) / max(1, len(plain) - 1)
        middle = (first + last) / 2
        return {text: first + step * index if len(plain) > 1 else middle for index, text in enumerate(plain)}
    end = last - (80.0 if others else 0.0)
    low, high = min(numbers.values()), max(numbers.values())
    scale = math.log if low > 0 and high / low > _LOG_FROM else float
    span = scale(high) - scale(low)
    places = {text: first + (scale(value) - scale(low)) / span * (end - first) for text, value in numbers.items()}
    return places | {text: last for text in others}


def _y(tokens_per_s: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - tokens_per_s / top * (_HEIGHT - _TOP - _BOTTOM)


def _grid(places: dict[str, float], ticks: list[float], right: float, name: str) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for tick in ticks:
        y = _y(tick, ticks[-1])
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{count(tick)}</text>')
    readable = _readable(places)
    for text, x in places.items():
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}"/>')
        if text in readable:
            where = f'x="{x:.1f}" y="{bottom + 20}" text-anchor="middle"'
            parts.append(f'<text class="quiet" {where}>{escape(text)}</text>')
    parts.append(
        f'<text class="quiet" x="{(_LEFT + right) / 2:.1f}" y="{bottom + 48}" text-anchor="middle">'
        f"{escape(name)}</text>"
    )
    return parts


def _readable(places: dict[str, float]) -> list[str]:
    """Labels that do not run into each other; both ends first, then from left to right."""
    by_place = sorted(places, key=lambda text: places[text])
    chosen: list[str] = []
    for text in dict.fromkeys([*by_place[:1], *by_place[-1:], *by_place]):
        room = [abs(places[text] - places[other]) - (len(text) + len(other)) / 2 * _LETTER for other in chosen]
        if all(pixels > _LETTER for pixels in room):
            chosen.append(text)
    return chosen


def _line(number: int, rows: Sequence[Row], places: dict[str, float], top: float) -> list[str]:
    """Points in order of x, joined where neighbours fit; what does not fit is a cross on the ground."""
    parts, run = [], list[str]()
    marks = []
    for row in sorted(rows, key=lambda row: places[row.point.settings[0].text]):
        x = places[row.point.settings[0].text]
        said = escape(_said(row))
        if isinstance(row.outcome, NothingFits):
            parts.append(_joined(number, run))
            run = []
            cross = f"M{x - 5:.1f},{_HEIGHT - _BOTTOM - 5} l10,10 m0,-10 l-10,10"
            marks.append(f'<path class="l{number}" d="{cross}"><title>{said}</title></path>')
            continue
        y = _y(row.outcome.tokens_per_s, top)
        run.append(f"{x:.1f},{y:.1f}")
        marks.append(f'<circle class="p{number}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{said}</title></circle>')
    return [*parts, _joined(number, run), *marks]


def _joined(number: int, places: list[str]) -> str:
    return f'<polyline class="l{number}" points="{" ".join(places)}"/>' if len(places) > 1 else ""


def _legend(lines: dict[str, list[Row]], settings: Sequence[Setting], right: float) -> list[str]:
    """Beside the lines; one that another hides says which."""
    x = right + 24
    heading = ", ".join(short_names([setting.name for setting in settings]))
    parts = [f'<text class="quiet" x="{x}" y="{_TOP + 6}">{escape(_cut(heading))}</text>']
    figures = {text: [row.outcome for row in rows] for text, rows in lines.items()}
    for number, text in enumerate(lines):
        y = _TOP + 30 + 22 * number
        if y > _HEIGHT - 20:
            break
        above = [other for other in list(lines)[number + 1 :] if figures[other] == figures[text]]
        same = f' <tspan class="quiet">= {escape(_cut(above[-1]))}</tspan>' if above else ""
        parts.append(f'<line class="l{number}" x1="{x}" y1="{y - 5}" x2="{x + 26}" y2="{y - 5}"/>')
        parts.append(f'<circle class="p{number}" cx="{x + 13}" cy="{y - 5}" r="4.5"/>')
        parts.append(f'<text x="{x + 36}" y="{y}">{escape(_cut(text))}{same}</text>')
    return parts


def _cut(text: str) -> str:
    return text if len(text) <= 26 else f"…{text[-25:]}"


def _said(row: Row) -> str:
    where = ", ".join(f"{setting.name} {setting.text}" for setting in row.point.settings)
    if isinstance(row.outcome, NothingFits):
        return f"{where}: nothing fits"
    used = " + ".join(f"{name} {gpus}" for name, gpus in row.outcome.datacenters.items())
    return (
        f"{where}: {count(row.outcome.tokens_per_s)} tokens/s, step {format_seconds(row.outcome.step_time_s)}, {used}"
    )
