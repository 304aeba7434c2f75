"""Charts of what was measured on a WAN: rate over connections, and time of a transfer by the way it went."""

import math
from collections.abc import Sequence
from html import escape

from geotrain.reports.charts import STYLE
from geotrain.units import format_rate, format_seconds, format_traffic, plural
from geotrain.wan.bench import Bench
from geotrain.wan.figures import Probe, Step

_WIDTH, _HEIGHT = 860, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 110, 150, 64, 70
_LOOK = """
.there { stroke: #2f6fbd; } .back { stroke: #2f9e62; }
.there, .back { stroke-width: 2; fill: none; }
.p-there { fill: #2f6fbd; } .p-back { fill: #2f9e62; }
.paper { stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }
.tick { stroke: #b35900; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
  .there { stroke: #6aa9f0; } .back { stroke: #46b87a; }
  .p-there { fill: #6aa9f0; } .p-back { fill: #46b87a; }
  .paper { stroke: #a3adba; } .tick { stroke: #e0954f; }
}
"""


def probe_svg(probe: Probe) -> str:
    """Rate over the number of connections, both ways; dashed what as many times one connection would be."""
    ways = {"there": probe.there, "back": probe.back}
    most = max(step.connections for way in ways.values() for step in way.steps)
    ticks = _ticks(max(way.cap for way in ways.values()))
    title = f"Rate over connections, {probe.host}:{probe.port}, round trip {format_seconds(probe.rtt_s)}"
    body = [f'<text class="head" x="16" y="30">{escape(title)}</text>', *_grid(most, ticks)]
    one = (probe.there.single + probe.back.single) / 2
    end = min(float(most), ticks[-1] / one)
    line = " ".join(f"{_x(n, most):.1f},{_y(n * one, ticks[-1]):.1f}" for n in _between(1.0, end))
    body.append(f'<polyline class="paper" points="{line}"><title>as many times one connection</title></polyline>')
    for name, way in ways.items():
        body += _way(name, way.steps, most, ticks[-1])
    said = "; ".join(
        f"{name}, {step.connections}: {format_rate(step.rate)}" for name, way in ways.items() for step in way.steps
    )
    return _svg(_HEIGHT, title, said, body + _legend(_WIDTH - _RIGHT + 24))


def _x(connections: float, most: int) -> float:
    doublings = math.log2(connections) / max(1.0, math.log2(most))
    return _LEFT + 20 + doublings * (_WIDTH - _LEFT - _RIGHT - 40)


def _y(rate: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - rate / top * (_HEIGHT - _TOP - _BOTTOM)


def _ticks(highest: float) -> list[float]:
    """From 0 in about five steps that are round in bits, to at least the highest."""
    raw = highest / 5 * 8
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999) / 8
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def _between(first: float, last: float) -> list[float]:
    """Points along a curve: straight in numbers is bent where the axis doubles."""
    return [first * (max(last, first) / first) ** (number / 40) for number in range(41)]


def _grid(most: int, ticks: list[float]) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for tick in ticks:
        y = _y(tick, ticks[-1])
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        label = format_rate(tick) if tick else "0"
        parts.append(f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for power in range(round(math.log2(most)) + 1):
        x = _x(2**power, most)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{2**power}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text class="quiet" x="{middle:.1f}" y="{bottom + 48}" text-anchor="middle">TCP connections at once</text>'
    )
    return parts


def _way(name: str, steps: Sequence[Step], most: int, top: float) -> list[str]:
    places = [(_x(step.connections, most), _y(step.rate, top)) for step in steps]
    parts = [f'<polyline class="{name}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>']
    for step, (x, y) in zip(steps, places, strict=True):
        said = f"{name}, {plural(step.connections, 'connection')}: {format_rate(step.rate)}"
        parts.append(f'<circle class="p-{name}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{said}</title></circle>')
    return parts


def _legend(x: float) -> list[str]:
    parts = []
    for number, name in enumerate(("there", "back")):
        y = _TOP + 10 + 22 * number
        parts.append(f'<line class="{name}" x1="{x}" y1="{y}" x2="{x + 26}" y2="{y}"/>')
        parts.append(f'<circle class="p-{name}" cx="{x + 13}" cy="{y}" r="4.5"/>')
        parts.append(f'<text x="{x + 36}" y="{y + 5}">{name}</text>')
    y = _TOP + 54
    parts.append(f'<line class="paper" x1="{x}" y1="{y}" x2="{x + 26}" y2="{y}"/>')
    parts.append(f'<text x="{x + 36}" y="{y + 5}">n x one</text>')
    return parts


def bench_svg(bench: Bench) -> str:
    """Time of a transfer as bars; a tick where the simulator puts it."""
    rows = [row for row in bench.rows if not row.missing]
    left, right, row_height = 170, 220, 38
    height = _TOP + row_height * len(rows) + 56
    longest = max(max(row.time_s, row.predicted_s) for row in rows)
    fastest = min(row.time_s for row in rows)
    scale = (_WIDTH - left - right) / longest
    title = f"{format_traffic(bench.size_bytes)} from {bench.source} to {bench.target}: time of a transfer"
    body = [f'<text class="head" x="16" y="30">{escape(title)}</text>']
    for number, row in enumerate(rows):
        y = _TOP + row_height * number
        width = max(1.0, row.time_s * scale)
        colour = "best" if row.time_s == fastest else "bar"
        at = left + row.predicted_s * scale
        after = max(left + width, at) + 10
        body.append(f'<text x="{left - 10}" y="{y + 20}" text-anchor="end">{escape(row.way)}</text>')
        body.append(f'<rect class="{colour}" x="{left}" y="{y + 4}" width="{width:.1f}" height="24" rx="2"/>')
        body.append(f'<line class="tick" x1="{at:.1f}" y1="{y}" x2="{at:.1f}" y2="{y + 32}"/>')
        gain = f'<tspan class="quiet">{bench.gain(row):.3g}x, {format_rate(bench.rate(row))}</tspan>'
        body.append(f'<text x="{after:.1f}" y="{y + 20}">{format_seconds(row.time_s)} {gain}</text>')
    y = _TOP + row_height * len(rows) + 26
    body.append(f'<line class="tick" x1="{left}" y1="{y - 12}" x2="{left}" y2="{y + 4}"/>')
    body.append(
        f'<text class="quiet" x="{left + 12}" y="{y}">what the simulator counts on: bytes / rate + rtt / 2</text>'
    )
    said = "; ".join(f"{row.way}: {format_seconds(row.time_s)}" for row in rows)
    return _svg(height, title, said, body)


def _svg(height: int, title: str, said: str, body: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}"><title>{escape(title)}</title><desc>{escape(said)}</desc>'
        f"<style>{STYLE}{_LOOK}</style>{''.join(body)}</svg>\n"
    )
