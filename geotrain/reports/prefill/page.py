"""Prefill in the bubbles as one HTML file, in the look of the report on a step. Everything inserted is escaped."""

from geotrain.reports.charts import Part, stacked_bar
from geotrain.reports.html.page import page
from geotrain.reports.html.sections import bar_row, legend, section, summary, table
from geotrain.reports.html.timeline import timeline
from geotrain.reports.prefill.charts import charts_css, ttft_chart, utilization_chart
from geotrain.reports.prefill.timeline import excerpt, filled_gantt
from geotrain.reports.prefill.words import (
    WAY_HEADINGS,
    WAY_NOTE,
    WAYS,
    endings,
    headline,
    reasons,
    seconds,
    sentences,
    title,
    uses,
    way_row,
    ways,
)
from geotrain.reports.words import percent
from geotrain.simulation.prefill.outcome import Outcome, Study
from geotrain.units import format_seconds, plural

_MOST_SPANS, _MOST_STEPS = 60_000, 4


def prefill_html(study: Study) -> str:
    """The text of the file; the same Study gives the same text."""
    part = excerpt(study, most_spans=_MOST_SPANS, most_steps=_MOST_STEPS)
    picture = filled_gantt(part)
    drawn = f"Shown: {part.said}, under our filling. A dashed line is where a step begins."
    spans, slots = picture.description["spans"], len(part.tracks)
    parts = [
        summary(headline(study)),
        section("ways", "Ways of filling", _ways(study)),
        f'<div class="plots">{_first_tokens(study)}{_utilization(study)}</div>',
        section("bubbles", "Where the bubbles went", _bubbles(study)),
        timeline(f"Timeline of {spans} spans of training and prefill on {plural(slots, 'slot')}", drawn),
        section("requests", "Requests", _requests(study)),
    ]
    return page(
        title=f"geotrain: prefill in the bubbles, {study.trace}",
        heading=title(study),
        lead=sentences(study),
        parts=parts,
        picture=picture,
        css=charts_css(),
    )


def _ways(study: Study) -> str:
    rows = table(WAY_HEADINGS, map(way_row, ways(study)), ours=WAYS[study.ours.name])
    return f'{rows}<p class="note">{WAY_NOTE}</p>'


def _first_tokens(study: Study) -> str:
    keys = [("prefill", "in bubbles", ""), ("backward", "dedicated GPUs", ""), ("limit", "SLO", "")]
    note = '<p class="note">Over all arrivals: a curve ends below 100% where requests were rejected or failed.</p>'
    return section("ttft", "Time to first token", ttft_chart(study) + legend(keys) + note)


def _utilization(study: Study) -> str:
    keys = [("forward", "training", ""), ("prefill", "prefill", "")]
    note = '<p class="note">Dashed: without prefill.</p>'
    return section("utilization", "GPU utilization over time", utilization_chart(study) + legend(keys) + note)


def _bubbles(study: Study) -> str:
    """A bar for every way that fills; in numbers what ours left."""
    filled = [outcome for outcome in ways(study) if outcome.offered_s > 0 and outcome.name not in ("none", "dedicated")]
    rows = "".join(_bubble_row(outcome) for outcome in filled)
    seen = {use.key for outcome in filled for use in uses(outcome) if use.time_s > 0}
    ours = [
        (use.key, use.label, f"{seconds(use.time_s)}, {percent(use.share)}")
        for use in uses(study.ours)
        if use.key in seen
    ]
    return f'<ul class="bars">{rows}</ul>{legend(ours)}<p class="note">In numbers: geotrain.</p>'


def _bubble_row(outcome: Outcome) -> str:
    parts = [Part(key=use.key, label=f"{use.label}: {percent(use.share)}", value=use.share) for use in uses(outcome)]
    name, said = WAYS[outcome.name], ", ".join(part.label for part in parts)
    chart = stacked_bar(parts, total=1.0, title=f"Bubble seconds, {name}", description=said)
    used = f"{format_seconds(outcome.used_s)} of {format_seconds(outcome.offered_s)} used"
    return bar_row(name, "", chart, used)


def _requests(study: Study) -> str:
    rows = [[how, f"{number:,}", share] for how, number, share in endings(study)]
    found = [[reason, f"{number:,}"] for reason, number in reasons(study)]
    why = table(["not done because", "number"], found) if found else ""
    return table(["ended", "number", "of all arrivals"], rows) + why
