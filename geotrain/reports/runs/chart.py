"""A simulated and a measured step, one above the other on the same time axis; a file of its own."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np

from geotrain.reports.charts import STYLE, LinearScale
from geotrain.reports.html.asset import asset
from geotrain.reports.html.timeline import KINDS, Spans
from geotrain.reports.runs.comparison import RunComparison
from geotrain.reports.step.gantt import track_spans
from geotrain.reports.step.tracks import WAN, ChannelTrack, SlotTrack, channel_tracks, slot_tracks
from geotrain.training.recording import RecordedStep
from geotrain.units import format_seconds

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 1120, 170, 24, 48, 84
_HEAD, _ROW, _BAR, _GAP = 30, 19, 15, 22
_MOST_SLOTS = 24
"""As many pipelines are drawn as fit into this, of those that both sides have."""
_DIGIT, _ROOM = 6.0, 3.0
"""Width of a digit, and what a bar needs around its number."""
_LOOK = """
.row { fill: #f3f5f8; }
.panel { font-weight: 600; }
.label { font-size: 12px; text-anchor: end; }
.place { fill: #57606a; font-size: 12px; }
.number { fill: #10151b; font-size: 10px; text-anchor: middle; }
.end { stroke: #b3261e; stroke-width: 1.5; }
.other { stroke-dasharray: 3 3; opacity: 0.6; }
@media (prefers-color-scheme: dark) {
  .row { fill: #1a1f26; } .place { fill: #a3adba; } .number { fill: #10151b; } .end { stroke: #ff8a80; }
}
"""

_Track = SlotTrack | ChannelTrack


def runs_svg(comparison: RunComparison) -> str:
    """Slots, then WAN channels; numbers are microbatches; a red line is where the step ends."""
    sides = (comparison.simulated, comparison.measured)
    steps = [side.typical for side in sides]
    shown = _pipelines(steps)
    panels: list[_Panel] = []
    for side, step in zip(sides, steps, strict=True):
        top = panels[-1].bottom + _GAP if panels else _TOP
        title = f"{side.origin}, {format_seconds(step.timeline.step_time_s)}"
        note = f"step {step.number}, nearest to the median of {len(side.steady)}" if len(side.steady) > 1 else ""
        panels.append(_Panel(title=title, note=note, step=step, shown=shown, top=top))
    scale = _Scale(max(step.timeline.step_time_s for step in steps))
    title = (
        f"Step time: {format_seconds(comparison.simulated.step_time_s)} simulated, "
        f"{format_seconds(comparison.measured.step_time_s)} measured, error {comparison.error:+.1%}"
    )
    body = [f'<text class="head" x="16" y="28">{title}</text>']
    body += [row for panel in panels for row in panel.rows()]
    body += _axis(scale, panels)
    body += [span for panel in panels for span in panel.spans(scale)]
    body += [end for panel in panels for end in _ends(panel, panels, scale)]
    bottom = panels[-1].bottom
    body += _legend({kind for panel in panels for kind in panel.kinds}, bottom + 52)
    if shown < steps[1].timeline.num_pipelines:
        said = f"pipelines 0 to {shown - 1}" if shown > 1 else "pipeline 0"
        body.append(
            f'<text class="quiet" x="{_WIDTH - _RIGHT}" y="28" text-anchor="end">{said} of '
            f"{steps[1].timeline.num_pipelines}</text>"
        )
    colours = "".join(f".c-{name} {{ fill: {colour}; }}" for name, colour in _colours().items())
    height = bottom + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}"><title>A step, simulated and measured</title><desc>{escape(title)}</desc>'
        f"<style>{STYLE}{_LOOK}{colours}</style>{''.join(body)}</svg>\n"
    )


def _pipelines(steps: Iterable[RecordedStep]) -> int:
    """How many pipelines are drawn."""
    both = min(step.timeline.num_pipelines for step in steps)
    return max(1, min([both, *(_MOST_SLOTS // step.timeline.num_stages for step in steps)]))


def _colours() -> dict[str, str]:
    """Of the kinds of span, as in the report."""
    css = asset("geotrain.reports.html", "page.css").split("@media")[0]
    known = dict(re.findall(r"--([\w-]+): (#\w+);", css))
    return {name: known[name] for _, name in KINDS}


class _Scale:
    """Seconds to places on the axis that both steps share."""

    def __init__(self, longest_s: float) -> None:
        self.ticks = LinearScale(longest_s).ticks()
        self._pixels = (_WIDTH - _LEFT - _RIGHT) / longest_s

    def x(self, seconds: float) -> float:
        return _LEFT + seconds * self._pixels


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """One step."""

    title: str
    note: str
    step: RecordedStep
    shown: int
    """Pipelines."""
    top: int

    @cached_property
    def tracks(self) -> list[_Track]:
        moved = self.step.timeline.transfers
        slots = [track for track in slot_tracks(self.step) if track.pipeline < self.shown]
        channels = channel_tracks(self.step)
        return [*slots, *(track for track in channels if moved.pipeline[track.rows].min() < self.shown)]

    @cached_property
    def on_tracks(self) -> list[Spans]:
        return [track_spans(self.step, track) for track in self.tracks]

    @property
    def kinds(self) -> set[int]:
        return {kind for spans in self.on_tracks for kind in np.unique(spans.kind).tolist()}

    @property
    def bottom(self) -> int:
        return self.top + _HEAD + _ROW * len(self.tracks)

    def rows(self) -> Iterator[str]:
        """Titles, names and the strips on which the spans lie."""
        note = f'<tspan class="quiet" dx="10">{self.note}</tspan>'
        yield f'<text x="16" y="{self.top + 18}"><tspan class="panel">{self.title}</tspan>{note}</text>'
        before = ""
        for number, track in enumerate(self.tracks):
            y = self.top + _HEAD + _ROW * number
            place = track.datacenter if isinstance(track, SlotTrack) else WAN
            if place != before:
                yield f'<text class="place" x="16" y="{y + 12}">{escape(_cut(place, 12))}</text>'
            before = place
            yield f'<text class="label" x="{_LEFT - 8}" y="{y + 12}">{escape(_cut(track.short, 16))}</text>'
            width = _WIDTH - _LEFT - _RIGHT
            yield f'<rect class="row" x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}"/>'

    def spans(self, scale: _Scale) -> Iterator[str]:
        """A path per kind, and numbers where they fit."""
        paths: dict[int, list[str]] = {}
        numbers = []
        for row, spans in enumerate(self.on_tracks):
            y = self.top + _HEAD + _ROW * row
            columns = (spans.kind, spans.microbatch, spans.start_s, spans.end_s)
            for kind, microbatch, start_s, end_s in zip(*(column.tolist() for column in columns), strict=True):
                x, width = scale.x(start_s), scale.x(end_s) - scale.x(start_s)
                # A little air between neighbours.
                drawn = max(0.4, width - 0.8)
                paths.setdefault(kind, []).append(f"M{x:.1f} {y}h{drawn:.1f}v{_BAR}h-{drawn:.1f}z")
                if kind not in _UNNUMBERED and width >= _DIGIT * len(str(microbatch)) + _ROOM:
                    numbers.append(f'<text class="number" x="{x + drawn / 2:.1f}" y="{y + 11}">{microbatch}</text>')
        for kind, path in sorted(paths.items()):
            name, colour = KINDS[kind]
            yield f'<path class="c-{colour}" d="{"".join(path)}"><title>{name}</title></path>'
        yield from numbers


_UNNUMBERED = [number for number, (name, _) in enumerate(KINDS) if name in ("all-reduce", "optimizer")]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _axis(scale: _Scale, panels: list[_Panel]) -> Iterator[str]:
    for tick in scale.ticks:
        x = scale.x(tick)
        for panel in panels:
            yield f'<line class="grid" x1="{x:.1f}" y1="{panel.top + _HEAD - 5}" x2="{x:.1f}" y2="{panel.bottom}"/>'
        label = format_seconds(tick) if tick else "0"
        yield f'<text class="quiet" x="{x:.1f}" y="{panels[-1].bottom + 16}" text-anchor="middle">{label}</text>'


def _ends(panel: _Panel, panels: list[_Panel], scale: _Scale) -> Iterator[str]:
    """Where the step ends, and dashed where the other one does."""
    for other in panels:
        x, look = scale.x(other.step.timeline.step_time_s), "end" if other is panel else "end other"
        yield f'<line class="{look}" x1="{x:.1f}" y1="{panel.top + _HEAD - 5}" x2="{x:.1f}" y2="{panel.bottom}"/>'


def _legend(kinds: set[int], y: int) -> Iterator[str]:
    x = _LEFT
    for kind in sorted(kinds):
        name, colour = KINDS[kind]
        yield f'<rect class="c-{colour}" x="{x}" y="{y - 10}" width="11" height="11" rx="2"/>'
        yield f'<text class="quiet" x="{x + 17}" y="{y}">{name}</text>'
        x += 36 + round(6.8 * len(name))
