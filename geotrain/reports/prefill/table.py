"""What `geotrain prefill simulate` shows in a terminal and prints as JSON. Fits 80 columns."""

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geotrain.reports.prefill.words import (
    WAY_HEADINGS,
    WAY_NOTE,
    before,
    endings,
    headline,
    mean,
    quantile,
    reasons,
    sentences,
    ttft,
    uses,
    way_row,
    ways,
)
from geotrain.reports.textbars import figure_table, headline_table, stacked
from geotrain.reports.words import percent
from geotrain.simulation.prefill.outcome import Outcome, Study
from geotrain.units import TIME, format_seconds

_STYLES = {
    "prefill": "black on bright_green",
    "no-work": "dim",
    "waiting": "black on bright_cyan",
    "too-short": "black on bright_blue",
    "guard": "black on yellow",
    "mispredicted": "white on red",
    "other": "black on white",
}
_BAR_WIDTH = 72


def prefill_json(study: Study) -> dict[str, Any]:
    """The object that `geotrain prefill simulate --json` prints. Its names are a contract."""
    alone = before(study)
    return {
        **_outcome_json(study.ours, alone),
        "trace": study.trace,
        "rate_rps": study.rate_rps,
        "slo_s": study.slo_s,
        "models": list(study.degree),
        "degree": study.degree,
        "step_time_s": study.result.step_time_s,
        "steps": len(study.steps_s),
        "baselines": {name: _outcome_json(outcome, alone) for name, outcome in study.baselines.items()},
        "dedicated": _outcome_json(study.dedicated, study.dedicated.training_utilization),
    }


def _outcome_json(outcome: Outcome, alone: float) -> dict[str, Any]:
    return {
        "gpu_utilization_before": alone,
        "gpu_utilization_after": outcome.gpu_utilization,
        "training_utilization": outcome.training_utilization,
        "ttft_s": ttft(outcome),
        "goodput_rps": outcome.goodput_rps,
        "slo_attainment": outcome.slo_attainment,
        "training_slowdown": {"mean": mean(outcome.slowdown), "p99": quantile(outcome.slowdown, 0.99)},
        "overruns": outcome.overruns,
        "decision_us": {
            "mean": mean(outcome.decision_s) / TIME.units["us"],
            "p99": quantile(outcome.decision_s, 0.99) / TIME.units["us"],
        },
        "requests": {
            "done": outcome.done,
            "rejected": outcome.rejected,
            "failed": outcome.failed,
            "met": outcome.met,
            "reasons": outcome.reasons,
        },
        "bubble_s": {"offered": outcome.offered_s, "used": outcome.used_s, "wasted": outcome.wasted_s},
        "tokens": outcome.tokens,
        "reused_tokens": outcome.reused_tokens,
        "duration_s": outcome.duration_s,
        "trace_s": outcome.trace_s,
        "slots": outcome.num_slots,
    }


def prefill_table(study: Study) -> RenderableType:
    """Everything a person wants to know about filling, top down."""
    plan, trace = sentences(study)
    parts: list[RenderableType] = [
        Text(plan, style="bold"),
        Text(trace),
        Padding(headline_table(headline(study)), (1, 0, 0, 0)),
        Padding(_ways(study), (1, 0, 0, 0)),
        Text(WAY_NOTE, style="dim"),
        Padding(_bubbles(study), (1, 0, 0, 0)),
        Padding(_requests(study), (1, 0, 0, 0)),
    ]
    return Group(*parts)


def _ways(study: Study) -> Table:
    table = figure_table("Ways of filling")
    for heading in WAY_HEADINGS:
        table.add_column(heading, justify="left" if heading == WAY_HEADINGS[0] else "right", no_wrap=True)
    for outcome in ways(study):
        table.add_row(*way_row(outcome), style="bold" if outcome is study.ours else None)
    return table


def _bubbles(study: Study) -> RenderableType:
    entries = [entry for entry in uses(study.ours) if entry.time_s > 0]
    legend = Table.grid(padding=(0, 1))
    for _ in range(2):
        legend.add_column(no_wrap=True)
        legend.add_column(no_wrap=True, min_width=24)
        legend.add_column(no_wrap=True, justify="right", min_width=6)
        legend.add_column(min_width=2)
    half = (len(entries) + 1) // 2
    for row in range(half):
        cells: list[RenderableType] = []
        for entry in entries[row::half]:
            cells += [Text(entry.letter, _STYLES[entry.key]), Text(entry.label), percent(entry.share), ""]
        legend.add_row(*cells)
    line = stacked([(entry.letter, entry.time_s, _STYLES[entry.key]) for entry in entries], _BAR_WIDTH)
    said = f"Where {format_seconds(study.ours.offered_s)} of bubbles went, all slots together"
    return Group(Text(said, style="bold"), line, legend)


def _requests(study: Study) -> RenderableType:
    table = figure_table("Requests")
    table.add_column("ended", no_wrap=True)
    table.add_column("number", justify="right", no_wrap=True)
    table.add_column("of all", justify="right", no_wrap=True)
    for how, number, share in endings(study):
        table.add_row(how, f"{number:,}", share)
    said = "; ".join(f"{reason}: {number:,}" for reason, number in reasons(study))
    return Group(table, Text(f"not done because: {said}", style="dim")) if said else table
