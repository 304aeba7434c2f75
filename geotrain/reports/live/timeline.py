"""Two steps under load as SVG: training and prefill on the same GPUs and the same clock."""

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import numpy as np

from geotrain.action import Kind
from geotrain.reports.html.sections import legend
from geotrain.reports.live.figures import Live
from geotrain.reports.words import KIND_WORDS
from geotrain.seating import Seating
from geotrain.timeline import Floats, Ints
from geotrain.units import format_seconds

_WIDTH, _LEFT, _ROW, _GAP, _FOOT = 1100, 84, 26, 8, 26
_TICK_S = 0.5
_COLOURS = {**KIND_WORDS, Kind.I: "backward", Kind.W: "backward"}


class _Span(NamedTuple):
    colour: str
    name: str
    slot: int
    start_s: float
    end_s: float


def live_timeline(live: Live) -> str:
    """The last two steps under load that follow each other."""
    loaded, edges_s = live.measured.loaded, live.measured.edges_s
    pairs = np.flatnonzero(loaded[1:] & loaded[:-1])
    if not len(pairs):
        return "<p>No two steps were under load one after the other.</p>"
    first = int(pairs[-1])
    picture = _picture(live, edges_s[first : first + 3])
    keys = [(key, key, "") for key in ("forward", "recompute", "backward", "prefill")]
    note = '<p class="note">Dashed: a step begins. Point at a span for its time.</p>'
    return f'<div class="wide">{picture}</div>{legend(keys)}{note}'


def _picture(live: Live, edges_s: Floats) -> str:
    spans = list(_spans(live, edges_s))
    names = [seat.name for seat in Seating(live.plan).seats]
    height = len(names) * (_ROW + _GAP) + _FOOT
    tracks = [
        f'<rect class="track" x="{_LEFT}" y="{_top(slot)}" width="{_WIDTH - _LEFT}" height="{_ROW}"/>'
        f'<text x="{_LEFT - 8}" y="{_top(slot) + 18}" text-anchor="end">{escape(name)}</text>'
        for slot, name in enumerate(names)
    ]
    training = sum(span.colour != "prefill" for span in spans)
    said = (
        f"{len(names)} GPUs over {format_seconds(float(edges_s[-1] - edges_s[0]))}: {training} actions of training, "
        f"and {len(spans) - training} pieces of prefill between them"
    )
    body = [*tracks, *(_rect(span, edges_s) for span in spans), *_axis(edges_s, height)]
    return (
        f'<svg class="plot" role="img" style="min-width: 48rem" viewBox="0 0 {_WIDTH} {height}">'
        f"<title>Timeline of two steps</title><desc>{escape(said)}</desc>{''.join(body)}</svg>"
    )


def _spans(live: Live, edges_s: Floats) -> Iterator[_Span]:
    """What is seen between the edges."""

    def seen(start_s: Floats, end_s: Floats) -> Ints:
        return np.flatnonzero((end_s > edges_s[0]) & (start_s < edges_s[-1]))

    done, filled = live.training, live.measured.prefill
    for row in seen(done.start_s, done.end_s).tolist():
        kind, times_s = Kind(int(done.kind[row])), (float(done.start_s[row]), float(done.end_s[row]))
        yield _Span(_COLOURS[kind], f"{KIND_WORDS[kind]} {done.microbatch[row]}", int(done.slot[row]), *times_s)
    for row in seen(filled.start_s, filled.end_s).tolist():
        times_s = float(filled.start_s[row]), float(filled.end_s[row])
        yield _Span("prefill", f"prefill {filled.request[row]}", int(filled.slot[row]), *times_s)


def _rect(span: _Span, edges_s: Floats) -> str:
    x, to = (_across(float(np.clip(time_s, edges_s[0], edges_s[-1])), edges_s) for time_s in (span.start_s, span.end_s))
    place = f'x="{x:.2f}" y="{_top(span.slot)}" width="{max(0.2, to - x - 0.4):.2f}" height="{_ROW}"'
    said = escape(f"{span.name}: {format_seconds(span.end_s - span.start_s)}")
    return f'<rect class="c-{span.colour}" {place}><title>{said}</title></rect>'


def _axis(edges_s: Floats, height: int) -> Iterator[str]:
    """Ticks, and where the second step begins."""
    middle = _across(float(edges_s[1]), edges_s)
    yield f'<line class="alone" x1="{middle:.1f}" y1="0" x2="{middle:.1f}" y2="{height - _FOOT}"/>'
    for tick_s in np.arange(0.0, float(edges_s[-1] - edges_s[0]) - _TICK_S / 4, _TICK_S).tolist():
        x = _across(float(edges_s[0]) + tick_s, edges_s)
        yield f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{tick_s:g} s</text>'


def _across(time_s: float, edges_s: Floats) -> float:
    return _LEFT + (time_s - float(edges_s[0])) / float(edges_s[-1] - edges_s[0]) * (_WIDTH - _LEFT)


def _top(slot: int) -> int:
    return slot * (_ROW + _GAP)
