"""The curves of the report on prefill, as SVG in the page: how long first tokens take, how busy the GPUs are."""

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from geotrain.reports.charts import LinearScale
from geotrain.reports.html.asset import asset
from geotrain.reports.prefill.words import before, seconds
from geotrain.reports.words import percent
from geotrain.simulation.prefill.outcome import Outcome, Study
from geotrain.timeline import Floats
from geotrain.units import format_seconds

_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 14, 44
_POINTS = 200
_LEAST_S = 1e-3
"""Shorter times are drawn as this one: a log scale has no zero."""


def charts_css() -> str:
    """The look of a page with these curves."""
    return asset(__package__, "charts.css")


def ttft_chart(study: Study) -> str:
    """Share of all arrivals whose first token was there within a time, ours and on dedicated GPUs."""
    sides = {"ours": study.ours, "dedicated": study.dedicated}
    times_s = [study.slo_s, *(side.ttft(q) for side in sides.values() if len(side.ttft_s) for q in (0.0, 1.0))]
    low, high = math.log10(max(_LEAST_S, min(times_s) / 1.1)), math.log10(max(_LEAST_S, max(times_s)) * 1.1)

    def x(time_s: float) -> float:
        return _across((math.log10(max(_LEAST_S, time_s)) - low) / (high - low))

    marks = [(x(tick), f"{tick:g} s" if tick >= 1 else format_seconds(tick)) for tick in _log_ticks(low, high)]
    body = [*_grid(marks, "time to first token (logarithmic)")]
    body.append(_vertical("slo", x(study.slo_s), f"SLO {format_seconds(study.slo_s)}"))
    body += [
        _curve(look, [(x(time_s), _up(share)) for time_s, share in _arrived(side)]) for look, side in sides.items()
    ]
    said = "; ".join(_said(look, side, study.slo_s) for look, side in sides.items())
    return _svg("Share of all arrivals with their first token within a time", said, body)


def _arrived(outcome: Outcome) -> list[tuple[float, float]]:
    """Times, and the share of all arrivals that had their first token by then."""
    if not len(outcome.ttft_s):
        return []
    shares = np.linspace(0.0, 1.0, _POINTS)
    times_s = np.quantile(outcome.ttft_s, shares)
    return list(zip(times_s.tolist(), (shares * outcome.done / outcome.arrivals).tolist(), strict=True))


def _said(look: str, side: Outcome, slo_s: float) -> str:
    quantiles = ", ".join(f"p{q:.0%}".rstrip("%") + f" {seconds(side.ttft(q))}" for q in (0.5, 0.95, 0.99))
    return f"{look}: {quantiles}, {percent(side.slo_attainment)} of all arrivals within {format_seconds(slo_s)}"


def utilization_chart(study: Study) -> str:
    """Busy with training, and on top of it with prefill, step by step."""
    edges_s, training, prefill = _by_step(study)
    both = np.minimum(1.0, training + prefill)
    said = (
        f"without prefill {percent(before(study))}; with it {percent(study.ours.gpu_utilization)}, of which training "
        f"{percent(study.ours.training_utilization)}; lowest {percent(float(both.min()))}, "
        f"highest {percent(float(both.max()))}"
    )
    return stair_chart(edges_s, training, prefill, alone=before(study), said=said)


def stair_chart(edges_s: Floats, training: Floats, prefill: Floats, *, alone: float, said: str) -> str:
    """Shares of each step, one on top of the other, and a line for what is without prefill."""
    from_s, length_s = float(edges_s[0]), float(edges_s[-1] - edges_s[0]) or 1.0

    def outline(shares: Floats) -> list[tuple[float, float]]:
        """A stair: the mean of a step from its start to its end."""
        xs = [_across((float(edge) - from_s) / length_s) for edge in np.repeat(edges_s, 2)[1:-1]]
        return list(zip(xs, (_up(float(share)) for share in np.repeat(shares, 2)), strict=True))

    ground = [(_across(1.0), _up(0)), (_across(0.0), _up(0))]
    marks = [(_across(tick / length_s), f"{tick:g} s") for tick in LinearScale(length_s).ticks()]
    body = [
        *_grid(marks, "time"),
        f'<polygon class="c-prefill" points="{_places([*outline(np.minimum(1.0, training + prefill)), *ground])}"/>',
        f'<polygon class="c-forward" points="{_places([*outline(training), *ground])}"/>',
        _horizontal("alone", alone),
    ]
    return _svg("GPU utilization over time", said, body)


def _by_step(study: Study) -> tuple[Floats, Floats, Floats]:
    """Edges of the steps, or of groups of them where they are many, and what share of them is training and prefill.

    Every step has the same training work: a longer one is less busy.
    """
    ours = study.ours
    edges_s = np.append(study.steps_s[study.steps_s < ours.duration_s], ours.duration_s)
    # What the end of the observation cuts off is no whole step.
    edges_s = edges_s if len(edges_s) < 3 else edges_s[:-1]
    numbers = np.linspace(0, len(edges_s) - 1, min(len(edges_s), _POINTS + 1)).astype(np.int64)
    steps, edges_s = np.diff(numbers), edges_s[numbers]
    lengths_s = np.diff(edges_s)
    training = ours.training_utilization * lengths_s.sum() / steps.sum() * steps / lengths_s
    # Prefill GPUs of the cluster's own are slots too, after those of training.
    here = ours.spans.slot < ours.num_slots
    used_s = during(ours.spans.start_s[here], ours.spans.end_s[here], edges_s)
    return edges_s, training, used_s / lengths_s / ours.num_slots


def during(start_s: Floats, end_s: Floats, edges_s: Floats) -> Floats:
    """Time of spans, ordered by start, between each edge and the next."""
    return np.diff(_since(start_s, edges_s) - _since(np.sort(end_s), edges_s))


def _since(moments_s: Floats, at_s: Floats) -> Floats:
    """Per time: the seconds since each of the moments before it, summed."""
    number = np.searchsorted(moments_s, at_s)
    return np.asarray(at_s * number - np.append(0.0, np.cumsum(moments_s))[number])


def _across(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _up(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _log_ticks(low: float, high: float) -> list[float]:
    steps = (1, 2, 5) if high - low < 1.7 else (1,)
    ticks = [step * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for step in steps]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _grid(marks: Iterable[tuple[float, str]], name: str) -> Iterable[str]:
    """Shares from 0 to 100% upwards, and the marks across."""
    bottom = _HEIGHT - _BOTTOM
    for quarter in range(5):
        y = _up(quarter / 4)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{quarter / 4:.0%}</text>'
    for x, text in marks:
        yield f'<line class="grid" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}"/>'
        anchor = "end" if x > _WIDTH - _RIGHT - 12 else "middle"
        yield f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="{anchor}">{escape(text)}</text>'
    yield f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(name)}</text>'


def _vertical(look: str, x: float, text: str) -> str:
    anchor, gap = ("end", -6) if x > _WIDTH / 2 else ("start", 6)
    line = f'<line class="{look}" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}"/>'
    return f'{line}<text x="{x + gap:.1f}" y="{_up(0.06):.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _horizontal(look: str, share: float) -> str:
    return f'<line class="{look}" x1="{_LEFT}" y1="{_up(share):.1f}" x2="{_WIDTH - _RIGHT}" y2="{_up(share):.1f}"/>'


def _curve(look: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="line {look}" points="{_places(points)}"/>' if points else ""


def _places(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _svg(title: str, description: str, body: Iterable[str]) -> str:
    return (
        f'<svg class="plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{escape(title)}</title>'
        f"<desc>{escape(description)}</desc>{''.join(body)}</svg>"
    )
