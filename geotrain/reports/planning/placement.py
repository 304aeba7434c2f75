"""A plan as a picture: data centers as boxes with their stages, the links between them, and what is left out.

Boxes follow the pipeline, to and fro in rows of three, so that neighbours in the pipeline are neighbours on paper.
"""

from collections.abc import Mapping
from html import escape
from itertools import pairwise
from textwrap import wrap

from geotrain.planner.use import DatacenterUse, kind_of, unused_datacenters, uses
from geotrain.reports.words import percent, ranges
from geotrain.simulation.result import LinkUse, Result
from geotrain.units import format_rate, format_seconds, plural

_WIDTH, _MARGIN, _TOP = 860, 16, 62
_COLUMNS, _BOX, _BOX_HEIGHT, _GAP, _ROW_GAP = 3, 212, 112, 96, 60
_UNUSED_HEIGHT = 112
_INSIDE = _BOX - 20
_MOST_CHIPS = 7
"""Stages of a box that are drawn with their number; more are drawn as bars."""
_WORD = 56
"""Width of a drawn stage with room for the word before its number."""
_BUSY, _VERY_BUSY = 0.5, 0.8

_COLOURS = """
.placement { --page: #ffffff; --panel: #f6f8fa; --line: #d0d7de; --ink: #1b1f24; --quiet: #57606a; --forward: #4a8fdb;
  --backward: #d97c12; --limit: #b3261e; background: var(--page); }
@media (prefers-color-scheme: dark) {
  .placement { --page: #14171c; --panel: #1c2128; --line: #39414d; --ink: #e6e9ee; --quiet: #a3adba; --forward: #5a9be3;
    --backward: #e39a3b; --limit: #ff8a80; }
}
"""
_LOOK = """
.placement { font-family: system-ui, sans-serif; max-width: 100%; height: auto; }
.placement text { fill: var(--ink); font-size: 12px; }
.placement .name { font-size: 14px; font-weight: 600; }
.placement .heading { font-size: 17px; font-weight: 600; }
.placement .quiet { fill: var(--quiet); }
.placement .box { fill: var(--panel); stroke: var(--line); }
.placement .unused { fill: none; stroke: var(--line); stroke-dasharray: 5 4; }
.placement .chip { fill: var(--forward); }
.placement .chip-text { fill: #0b1620; font-size: 11px; }
.placement .link { stroke: var(--quiet); }
.placement .tip { fill: var(--quiet); }
.placement .busy .link { stroke: var(--backward); } .placement .busy .tip { fill: var(--backward); }
.placement .very-busy .link { stroke: var(--limit); } .placement .very-busy .tip { fill: var(--limit); }
.placement .dashed { stroke-dasharray: 7 4; }
"""


def placement_svg(result: Result, not_used: Mapping[str, str] | None = None, *, in_page: bool = False) -> str:
    """A file of its own, or with `in_page` a part of the report, whose colours and caption it takes.

    `not_used` says in a few words why a data center was left out.
    """
    plan = result.plan
    used, unused = uses(plan), unused_datacenters(plan)
    rows_used, rows_unused = -(-len(used) // _COLUMNS), -(-len(unused) // _COLUMNS)
    bottom = _row_y(rows_used)
    spots = {use.dc: _spot(index) for index, use in enumerate(used)}
    heading = [
        f'<text class="heading" x="{_MARGIN}" y="28">Data centers, stages and links</text>',
        f'<text class="quiet" x="{_MARGIN}" y="48">{escape(shortened(caption(result), 118))}</text>',
    ]
    body = [
        *([] if in_page else heading),
        *(_link(result, here.dc, there.dc, spots) for here, there in pairwise(used)),
        *(_used_box(result, use, *spots[use.dc]) for use in used),
    ]
    others = _other_links(result, used)
    for number, line in enumerate(others):
        body.append(
            f'<text class="quiet" x="{_MARGIN}" y="{bottom - _ROW_GAP + 22 + 16 * number}">{escape(line)}</text>'
        )
    top = bottom - _ROW_GAP + 16 * len(others) + 28
    for index, name in enumerate(unused):
        x, y = _MARGIN + (_BOX + _GAP) * (index % _COLUMNS), top + (_UNUSED_HEIGHT + 12) * (index // _COLUMNS)
        body.append(_unused_box(result, name, (not_used or {}).get(name, ""), x, y))
    bottom = top + (_UNUSED_HEIGHT + 12) * rows_unused
    above = _TOP - 2 if in_page else 0
    return (
        f'<svg class="placement" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 {above} {_WIDTH} '
        f'{bottom - above}" width="{_WIDTH}" height="{bottom - above}"><title>Data centers, stages and links</title>'
        f"<desc>{escape(_described(result, not_used or {}))}</desc>"
        f"<style>{'' if in_page else _COLOURS}{_LOOK}</style>{''.join(body)}</svg>\n"
    )


def shortened(text: str, most: int) -> str:
    """Cut with an ellipsis where it would not fit."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _row_y(row: int) -> int:
    return _TOP + row * (_BOX_HEIGHT + _ROW_GAP)


def _spot(index: int) -> tuple[int, int]:
    """Left to right, then right to left."""
    row, column = divmod(index, _COLUMNS)
    column = _COLUMNS - 1 - column if row % 2 else column
    return _MARGIN + column * (_BOX + _GAP), _row_y(row)


def caption(result: Result) -> str:
    """Pipeline across east and west: 4 pipelines of 16 microbatches, schedule auto."""
    plan = result.plan
    batches = plural(plan.num_microbatches, "microbatch")
    return f"{kind_of(plan)}: {plural(plan.num_pipelines, 'pipeline')} of {batches}, schedule {plan.schedule}"


def _used_box(result: Result, use: DatacenterUse, x: int, y: int) -> str:
    dc = result.plan.cluster.datacenter(use.dc)
    gpus = f"{use.gpus} of {use.has_gpus} GPUs ({dc.gpu.name})"
    return (
        f'<rect class="box" x="{x}" y="{y}" width="{_BOX}" height="{_BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" x="{x + 10}" y="{y + 22}">{escape(shortened(use.dc, 24))}</text>'
        f'<text class="quiet" x="{x + 10}" y="{y + 40}">{escape(shortened(gpus, 32))}</text>'
        f"{_chips(result, use, x + 10, y + 50)}"
        f'<text class="quiet" x="{x + 10}" y="{y + 102}">{escape(shortened(_stages(result, use), 32))}</text>'
    )


def _stages(result: Result, use: DatacenterUse) -> str:
    each = [result.plan.stages[stage].layers for stage in use.stages]
    if len(each) == 1:
        return f"stage {use.stages[0]}: {plural(use.layers, 'layer')}"
    sizes = f"{each[0]} each" if len(set(each)) == 1 else f"{min(each)}-{max(each)} each"
    return f"stages {ranges(use.stages)}: {plural(use.layers, 'layer')}, {sizes}"


def _chips(result: Result, use: DatacenterUse, x: int, y: int) -> str:
    number = len(use.stages)
    gap = 4.0 if number <= _MOST_CHIPS else 1.0 if number <= _INSIDE // 4 else 0.0
    width = min(60.0, (_INSIDE - gap * (number - 1)) / number)
    parts = []
    for place, stage in enumerate(use.stages):
        left = x + place * (width + gap)
        said = f"stage {stage}: {plural(result.plan.stages[stage].layers, 'layer')}"
        parts.append(
            f'<rect class="chip" x="{left:.1f}" y="{y}" width="{width:.1f}" height="34" rx="{min(3.0, width / 4):.1f}">'
            f"<title>{said}</title></rect>"
        )
        if number <= _MOST_CHIPS:
            middle, words = left + width / 2, f"stage {stage}" if width >= _WORD else str(stage)
            parts.append(f'<text class="chip-text" x="{middle:.1f}" y="{y + 21}" text-anchor="middle">{words}</text>')
    return "".join(parts)


def _unused_box(result: Result, name: str, reason: str, x: int, y: int) -> str:
    dc = result.plan.cluster.datacenter(name)
    gpus = f"{plural(dc.num_gpus, 'GPU')} ({dc.gpu.name})"
    lines = wrap(f"not used: {reason}" if reason else "not used", 30)[:4]
    said = "".join(
        f'<text class="quiet" x="{x + 10}" y="{y + 58 + 15 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect class="unused" x="{x}" y="{y}" width="{_BOX}" height="{_UNUSED_HEIGHT}" rx="8"/>'
        f'<text class="name quiet" x="{x + 10}" y="{y + 22}">{escape(shortened(name, 24))}</text>'
        f'<text class="quiet" x="{x + 10}" y="{y + 40}">{escape(shortened(gpus, 32))}</text>'
        f"{said}"
    )


def _link(result: Result, here: str, there: str, spots: Mapping[str, tuple[int, int]]) -> str:
    """Both directions between neighbours; nothing where they do not talk."""
    both = {(link.source, link.target): link for link in result.links}
    forward, back = both.get((here, there)), both.get((there, here))
    if forward is None and back is None:
        return ""
    busiest = max(link.busy_fraction for link in (forward, back) if link)
    look = "very-busy" if busiest >= _VERY_BUSY else "busy" if busiest >= _BUSY else "quiet"
    said = "; ".join(_said(result, link) for link in (forward, back) if link)
    line = "link dashed" if result.plan.replicas else "link"
    ways = {"forward": forward is not None, "back": back is not None}
    return (
        f'<g class="{look}"><title>{escape(said)}</title>'
        f"{_line(spots[here], spots[there], line, busy=busiest, **ways)}</g>"
        f"{_label(result, here, there, forward or back, busiest, spots)}"
    )


def _said(result: Result, link: LinkUse) -> str:
    rtt = format_seconds(result.plan.cluster.link(link.source, link.target).rtt_s or 0.0)
    busy = percent(link.busy_fraction)
    return f"{link.source} → {link.target}: {format_rate(link.rate)} per pair, round trip {rtt}, {busy} busy"


def _line(here: tuple[int, int], there: tuple[int, int], look: str, *, forward: bool, back: bool, busy: float) -> str:
    width = 1.5 + 3 * busy
    if here[1] == there[1]:
        left, right = min(here[0], there[0]) + _BOX, max(here[0], there[0])
        y = here[1] + _BOX_HEIGHT // 2
        starts_left = here[0] < there[0]
        to_right, to_left = (forward, back) if starts_left else (back, forward)
        tips = [_tip(right - 2, y, 1, 0)] * to_right + [_tip(left + 2, y, -1, 0)] * to_left
        ends = f'x1="{left + 10}" y1="{y}" x2="{right - 10}" y2="{y}"'
    else:
        x = here[0] + _BOX // 2
        top, bottom = here[1] + _BOX_HEIGHT, there[1]
        tips = [_tip(x, bottom - 2, 0, 1)] * forward + [_tip(x, top + 2, 0, -1)] * back
        ends = f'x1="{x}" y1="{top + 10}" x2="{x}" y2="{bottom - 10}"'
    return f'<line class="{look}" stroke-width="{width:.1f}" {ends}/>{"".join(tips)}'


def _tip(x: int, y: int, dx: int, dy: int) -> str:
    """An arrow head that points along (dx, dy)."""
    points = [(x, y), (x - 9 * dx - 5 * dy, y - 9 * dy - 5 * dx), (x - 9 * dx + 5 * dy, y - 9 * dy + 5 * dx)]
    return f'<polygon class="tip" points="{" ".join(f"{a},{b}" for a, b in points)}"/>'


def _label(
    result: Result, here: str, there: str, link: LinkUse | None, busy: float, spots: Mapping[str, tuple[int, int]]
) -> str:
    assert link is not None
    (x, y), (other_x, other_y) = spots[here], spots[there]
    rtt = format_seconds(result.plan.cluster.link(link.source, link.target).rtt_s or 0.0)
    lines = [format_rate(link.rate), rtt, f"{busy:.0%} busy"]
    if y == other_y:
        middle, line = min(x, other_x) + _BOX + _GAP // 2, y + _BOX_HEIGHT // 2
        places = [(middle, line - 26), (middle, line - 12), (middle, line + 20)]
        return "".join(
            f'<text class="quiet" x="{a}" y="{b}" text-anchor="middle">{escape(text)}</text>'
            for (a, b), text in zip(places, lines, strict=True)
        )
    text = ", ".join(lines)
    at, anchor = (x + _BOX // 2 - 14, "end") if x > _WIDTH // 2 else (x + _BOX // 2 + 14, "start")
    below = y + _BOX_HEIGHT + _ROW_GAP // 2 + 4
    return f'<text class="quiet" x="{at}" y="{below}" text-anchor="{anchor}">{escape(text)}</text>'


def _other_links(result: Result, used: list[DatacenterUse]) -> list[str]:
    """Links between data centers that are not neighbours in the picture, such as the one that closes a ring."""
    neighbours = {frozenset((here.dc, there.dc)) for here, there in pairwise(used)}
    return [
        f"also {_said(result, link)}"
        for link in result.links
        if frozenset((link.source, link.target)) not in neighbours
    ]


def _described(result: Result, not_used: Mapping[str, str]) -> str:
    parts = [f"{use.dc}: {use.gpus} of {use.has_gpus} GPUs, {_stages(result, use)}" for use in uses(result.plan)]
    parts += [_said(result, link) for link in result.links]
    parts += [f"{name}: not used, {not_used.get(name, '')}".rstrip(", ") for name in unused_datacenters(result.plan)]
    return "; ".join(parts)
