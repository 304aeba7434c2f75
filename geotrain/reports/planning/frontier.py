"""Time against cost: the plans that nothing beats in both, as a table and as a chart."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.table import Table
from rich.text import Text

from geotrain.planner.answer import Answer, Scored
from geotrain.planner.use import kind_of
from geotrain.reports.textbars import figure_table
from geotrain.reports.words import count, money
from geotrain.units import days, format_seconds, hours, plural

_BILLION = 1e9
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 500, 96, 40, 84, 66
_FAR = 1.5
_APART = 20
"""Pixels between points that each get their number."""
_COLOURS = """
.frontier { --page: #ffffff; --line: #d0d7de; --ink: #1b1f24; --quiet: #57606a; --forward: #4a8fdb; --limit: #b35900;
  background: var(--page); }
@media (prefers-color-scheme: dark) {
  .frontier { --page: #14171c; --line: #39414d; --ink: #e6e9ee; --quiet: #a3adba; --forward: #5a9be3;
    --limit: #e0954f; }
}
"""
_LOOK = """
.frontier { font-family: system-ui, sans-serif; max-width: 100%; height: auto; }
.frontier text { fill: var(--ink); font-size: 12px; }
.frontier .heading { font-size: 17px; font-weight: 600; }
.frontier .quiet { fill: var(--quiet); }
.frontier .grid { stroke: var(--line); }
.frontier .way { fill: none; stroke: var(--forward); stroke-width: 2; }
.frontier .point { fill: var(--page); stroke: var(--forward); stroke-width: 2; }
.frontier .chosen { fill: #2f9e62; stroke: #2f9e62; }
.frontier .chosen-text { fill: #ffffff; font-weight: 600; }
.frontier .other { fill: none; stroke: var(--quiet); stroke-width: 1.5; }
.frontier .published { fill: none; stroke: var(--limit); stroke-width: 2; }
"""


def frontier_table(answer: Answer) -> Table:
    """The plans that nothing beats in both time and cost, fastest first."""
    tokens = answer.ask.tokens or _BILLION
    table = figure_table("Time against cost: nothing found is better in both")
    for heading in ("", "GPUs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("layout", overflow="fold")
    for heading in ("tokens/s", f"time of {count(tokens)}", f"cost of {count(tokens)}"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, scored in enumerate(answer.frontier, start=1):
        chosen = _same(scored, answer.best)
        table.add_row(
            str(number),
            str(scored.result.plan.num_gpus),
            Text(kind_of(scored.result.plan) + (" (chosen)" if chosen else "")),
            count(scored.result.tokens_per_s),
            format_seconds(scored.s_per_token * tokens),
            money(scored.cost_per_token * tokens),
            style="bold" if chosen else None,
        )
    return table


def _same(one: Scored, other: Scored) -> bool:
    return one.result.plan == other.result.plan


@dataclass(frozen=True)
class _Axis:
    """Numbers to places; begins a little below the smallest and ends a little above the largest."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def of(cls, numbers: Sequence[float], start: float, end: float) -> "_Axis":
        low, high = min(numbers), max(numbers)
        margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        return cls(max(0.0, low - margin) if low >= 0 else low - margin, high + margin, start, end)

    def place(self, number: float) -> float:
        return self.start + (number - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [step * number for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def frontier_svg(answer: Answer, *, in_page: bool = False) -> str:
    """Cost to the right, time upwards: nearer to the lower left corner is better."""
    tokens = answer.ask.tokens or _BILLION
    published = [answer.published] if answer.published else []
    others, published = _near(answer, answer.others), _near(answer, published)
    shown = [*answer.frontier, answer.best, *others, *published]
    far = len(answer.others) + (answer.published is not None) - len(others) - len(published)
    times, unit = _in_unit([scored.s_per_token * tokens for scored in shown])
    cost = _Axis.of([scored.cost_per_token * tokens for scored in shown], _LEFT, _WIDTH - _RIGHT)
    time = _Axis.of(times, _HEIGHT - _BOTTOM, _TOP)
    scale = times[0] / (shown[0].s_per_token * tokens)

    def spot(scored: Scored) -> tuple[float, float]:
        return cost.place(scored.cost_per_token * tokens), time.place(scored.s_per_token * tokens * scale)

    body = [
        f'<text class="heading" x="16" y="28">Time against cost of {count(tokens)} tokens</text>',
        *_legend(published=bool(published), others=bool(others), far=far),
        *_grid(cost, time, unit),
        *(_mark(spot(scored), "other", scored, tokens) for scored in others),
        *(_mark(spot(scored), "published", scored, tokens) for scored in published),
        f'<path class="way" d="{_way([spot(scored) for scored in answer.frontier])}"/>',
        *_points(answer, [spot(scored) for scored in answer.frontier], tokens),
    ]
    said = "; ".join(_said(scored, tokens) for scored in answer.frontier)
    return (
        f'<svg class="frontier" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}"><title>Time against cost</title><desc>{escape(said)}</desc>'
        f"<style>{'' if in_page else _COLOURS}{_LOOK}</style>{''.join(body)}</svg>\n"
    )


def _near(answer: Answer, others: Sequence[Scored]) -> list[Scored]:
    """Those that do not squeeze the frontier into a corner."""
    drawn = [*answer.frontier, answer.best]
    slowest, dearest = max(one.s_per_token for one in drawn), max(one.cost_per_token for one in drawn)
    return [other for other in others if other.s_per_token <= _FAR * slowest and other.cost_per_token <= _FAR * dearest]


def _in_unit(seconds: list[float]) -> tuple[list[float], str]:
    """Days or hours, whichever reads better."""
    if max(days(time) for time in seconds) >= 2:
        return [days(time) for time in seconds], "days"
    if max(hours(time) for time in seconds) >= 1:
        return [hours(time) for time in seconds], "hours"
    return seconds, "seconds"


def _way(spots: Sequence[tuple[float, float]]) -> str:
    """Steps: between two points, the dearer one is what can be had."""
    if not spots:
        return ""
    steps = [f"M{spots[0][0]:.1f} {spots[0][1]:.1f}"]
    steps += [f"V{y:.1f}H{x:.1f}" for x, y in spots[1:]]
    return "".join(steps)


def _said(scored: Scored, tokens: float) -> str:
    time, cost = format_seconds(scored.s_per_token * tokens), money(scored.cost_per_token * tokens)
    return f"{kind_of(scored.result.plan)}, {plural(scored.result.plan.num_gpus, 'GPU')}: {time}, {cost}"


def _mark(spot: tuple[float, float], look: str, scored: Scored, tokens: float, *, radius: int = 5) -> str:
    title = f"<title>{escape(_said(scored, tokens))}</title>"
    return f'<circle class="{look}" cx="{spot[0]:.1f}" cy="{spot[1]:.1f}" r="{radius}">{title}</circle>'


def _points(answer: Answer, spots: Sequence[tuple[float, float]], tokens: float) -> list[str]:
    """The frontier, numbered like the table; points too near to a numbered one stay small. The chosen one is on top."""
    parts: list[str] = []
    numbered: list[tuple[float, float]] = []
    order = sorted(range(len(spots)), key=lambda index: not _same(answer.frontier[index], answer.best))
    for index in order:
        (x, y), scored = spots[index], answer.frontier[index]
        chosen = _same(scored, answer.best)
        crowded = any(math.dist((x, y), other) < _APART for other in numbered)
        mark = _mark((x, y), "point chosen" if chosen else "point", scored, tokens, radius=4 if crowded else 10)
        if not crowded:
            numbered.append((x, y))
            look = ' class="chosen-text"' if chosen else ""
            mark += f'<text{look} x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{index + 1}</text>'
        parts.append(mark)
    return parts[::-1]


def _legend(*, published: bool, others: bool, far: int) -> list[str]:
    entries = [("point chosen", "this plan"), ("point", "nothing found is better in both")]
    entries += [("published", "published algorithm")] * published + [("other", "runner-up of another kind")] * others
    parts, x = [], 24
    for look, name in entries:
        parts.append(f'<circle class="{look}" cx="{x}" cy="52" r="6"/><text x="{x + 13}" y="56">{name}</text>')
        x += 34 + round(6.6 * len(name))
    if far:
        parts.append(f'<text class="quiet" x="{x - 8}" y="56">{far} more off the chart</text>')
    return parts


def _tick(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.4g}"


def _grid(cost: _Axis, time: _Axis, unit: str) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick in cost.ticks():
        x = cost.place(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_tick(tick)}</text>')
    for tick in time.ticks():
        y = time.place(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_tick(tick)}</text>')
    middle = (_TOP + bottom) / 2
    parts.append(f'<text class="quiet" x="{(_LEFT + right) / 2}" y="{bottom + 42}" text-anchor="middle">cost</text>')
    parts.append(
        f'<text class="quiet" x="22" y="{middle}" text-anchor="middle" transform="rotate(-90 22 {middle})">'
        f"time in {unit}</text>"
    )
    return parts
