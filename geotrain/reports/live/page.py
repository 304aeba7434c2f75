"""Training and serving at the same time as one HTML file that needs no scripts. Everything inserted is escaped."""

from html import escape

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from geotrain.reports.html.page import page
from geotrain.reports.html.sections import legend, section, summary, table
from geotrain.reports.live.figures import Live, Side
from geotrain.reports.live.timeline import live_timeline
from geotrain.reports.prefill.charts import charts_css, stair_chart
from geotrain.reports.prefill.words import seconds
from geotrain.reports.textbars import figure_table
from geotrain.reports.words import Figure, percent, plan_sentence
from geotrain.timeline import Floats
from geotrain.units import format_seconds, plural

_HEADINGS = ["", "alone", "serving", "training slower", "TTFT p50", "TTFT p99", "429", "overruns"]
_EXACT = 5e-5
"""A margin below is not worth telling."""
_NO_WAN = "Without root or user namespaces there is no emulated WAN here, and so fewer bubbles: all is over loopback."
_SIDES = (
    "Alone, serving: how busy GPUs are in steps without any prefill, and in steps during all of which requests came. "
    "TTFT: time to first token of the requests that were answered. 429: share of those turned away. Overruns: units of "
    "prefill still on when training came back."
)


def live_html(live: Live) -> str:
    """The text of the file."""
    parts = [
        summary(_figures(live)),
        section("sides", "Measured and simulated", table(_HEADINGS, _rows(live), ours="measured") + _note(_SIDES)),
        section("timeline", "Training and prefill on the same GPUs", live_timeline(live)),
        f'<div class="plots">{_utilization(live)}{_steps(live)}</div>',
        section("how", "What was real", _list(_how(live))),
    ]
    return page(
        title="geotrain: training and serving, live",
        heading=_heading(live),
        lead=[plan_sentence(live.plan), _load(live), *([] if live.on == "testbed" else [_NO_WAN])],
        parts=parts,
        css=charts_css(),
    )


def live_table(live: Live) -> RenderableType:
    """The same for a terminal."""
    sides = figure_table("Measured and simulated")
    for heading in _HEADINGS:
        sides.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in _rows(live):
        sides.add_row(*row)
    return Group(Text(_heading(live), style="bold"), Text(_load(live)), Padding(sides, (1, 0, 0, 0)))


def _heading(live: Live) -> str:
    side = live.measured
    return f"Live: GPUs {_share(side.before)} busy with training, {_share(side.after)} with serving from its bubbles"


def _load(live: Live) -> str:
    side = live.measured
    return (
        f"{side.arrivals:,} requests, {live.trace}, at {live.rate_rps:.3g}/s in {plural(side.blocks.rounds, 'block')} "
        f"of {format_seconds(side.blocks.on_s)} with pauses of {format_seconds(side.blocks.off_s)}; SLO "
        f"{format_seconds(live.slo_s)}."
    )


def _figures(live: Live) -> list[Figure]:
    side = live.measured
    answered = len(side.ttft_s)
    return [
        Figure(
            label="GPU utilization",
            value=f"{_share(side.before)} → {_share(side.after)}",
            note=f"training alone, then with serving; simulated: {_share(live.simulated.after)}",
        ),
        Figure(
            label="training slower by",
            value=_slower(side),
            note=f"{plural(int(side.loaded.sum()), 'step')} under load against {int(side.quiet.sum())} without any; "
            "the margin is that of 95%",
        ),
        Figure(
            label="time to first token",
            value=seconds(side.ttft(0.5)),
            note=f"p50 of {answered:,} answers, at the client; p99 {seconds(side.ttft(0.99))}",
        ),
        Figure(
            label="turned away at once",
            value=_share(side.turned_away),
            note=f"{side.rejected:,} with 429, as no bubble would have come in time; {side.failed:,} failed",
        ),
    ]


def _rows(live: Live) -> list[list[str]]:
    return [_row("measured", live.measured), _row("simulated", live.simulated)]


def _row(name: str, side: Side) -> list[str]:
    busy = [_share(side.before), _share(side.after)]
    first = [seconds(side.ttft(0.5)), seconds(side.ttft(0.99))]
    return [name, *busy, _slower(side), *first, _share(side.turned_away), str(side.overruns)]


def _slower(side: Side) -> str:
    mean, margin = side.slowdown
    # + 0.0 makes a rounded -0 a plain 0.
    said = "-" if np.isnan(mean) else f"{round(mean, 4) + 0.0:.2%}"
    return f"{said} ± {margin:.2%}" if margin > _EXACT else said


def _how(live: Live) -> list[str]:
    where = (
        "over real TCP between network namespaces, whose WAN has the plan's round trips and rates"
        if live.on == "testbed"
        else "over loopback"
    )
    return [
        f"Training: {live.plan.num_gpus} processes of geotrain train {where}. Its GPUs are emulated: an action "
        "holds the device for as long as the plan's profile says, and sends real bytes.",
        f"Serving: geotrain serve with a prefill worker beside each training process, a decoder, and OpenAI's own "
        f"client. The model is tiny and its weights are random, so that its answers mean nothing; a prompt holds the "
        f"same device for as long as one of {live.like} should take there, in the simulation too.",
        f"Requests: arrivals and lengths of the trace, brought to a rate that is more than the bubbles hold; prompts "
        f"are cut at {live.most_tokens:,} tokens, and answers end after a few.",
        "All of it shares this machine's cores: what slows training is prefill that overran, and everything else that "
        "the machine did meanwhile.",
    ]


def _list(sentences: list[str]) -> str:
    return f'<ul class="sentences">{"".join(f"<li>{escape(one)}</li>" for one in sentences)}</ul>'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _utilization(live: Live) -> str:
    side = live.measured
    whole_s = side.lengths_s * side.num_slots
    said = f"without prefill {_share(side.before)}, under load {_share(side.after)}"
    shares = side.training_s / whole_s, side.prefill_s / whole_s
    chart = stair_chart(side.edges_s, *shares, alone=side.before, said=said)
    keys = [("forward", "training", ""), ("prefill", "prefill", "")]
    return section(
        "utilization", "GPU utilization, step by step", chart + legend(keys) + _note("Dashed: without prefill.")
    )


def _steps(live: Live) -> str:
    """Lengths of the steps, in a table: they are few."""
    side = live.measured
    kinds = [("without any prefill", side.lengths_s[side.quiet]), ("under load", side.lengths_s[side.loaded])]
    rows = [[name, str(len(times_s)), *_spread(times_s)] for name, times_s in kinds]
    return section("steps", "Length of a step", table(["steps", "number", "mean", "least", "median", "most"], rows))


def _spread(times_s: Floats) -> list[str]:
    if not len(times_s):
        return ["-"] * 4
    return [f"{value:.3f} s" for value in (times_s.mean(), times_s.min(), np.median(times_s), times_s.max())]


def _share(value: float) -> str:
    return "-" if np.isnan(value) else percent(value)
