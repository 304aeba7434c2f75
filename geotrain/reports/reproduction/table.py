"""What `geotrain reproduce` found, in a terminal, as JSON and as a page of the docs."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geotrain.reports.reproduction.chart import are_long, number, points, text
from geotrain.reports.textbars import figure_table
from geotrain.reproduction import Chart, Claim, Finding, Outcome, Verdict
from geotrain.units import format_seconds

TRUST = {
    "page": "read in the published text",
    "memory": "remembered from the paper, unverified",
    "derived": "arithmetic from such figures",
    "none": "our own aim, not published",
}
PARTS = {"published": "The published claims", "beyond": "Beyond them", "fidelity": "Simulated against measured"}
_STYLES = {"holds": "green", "more": "yellow", "less": "yellow", "not measured": "dim"}


def claimed(claim: Claim) -> str:
    """The claimed figure and what would confirm it."""
    value = number(claim.value, claim.unit)
    if claim.within is not None:
        return f"{value}, ±{claim.within:.0%}"
    return f"{'at least' if claim.at_least else 'at most'} {value}"


def found(verdict: Verdict) -> str:
    """Our figure, with its spread where it was measured."""
    if verdict.ours is None:
        return "-"
    shown = number(verdict.ours, verdict.claim.unit)
    return shown + (_spread(verdict.findings[0]) if len(verdict.findings) == 1 else "")


def _spread(one: Finding) -> str:
    """Least and most of the repetitions; nothing of what was not measured."""
    if not one.samples:
        return ""
    unit = "%" if one.unit == "%" else ""
    return f" ({number(min(one.samples), unit)} to {number(max(one.samples), unit)})"


def reproduction_table(outcomes: Sequence[Outcome]) -> RenderableType:
    """Every claim beside ours."""
    table = figure_table("Claimed and found")
    for column in ("claim", "claimed", "ours", "verdict", "trust"):
        table.add_column(column, justify="right" if column in ("claimed", "ours") else "left")
    for outcome in outcomes:
        if outcome.verdicts:
            table.add_row(Text(outcome.name, style="bold"))
        for verdict in outcome.verdicts:
            claim, word = verdict.claim, Text(verdict.word, style=_STYLES[verdict.word])
            table.add_row(f"  {claim.says}", claimed(claim), found(verdict), word, claim.trust)
    left_out = [Text(f"{one.name}: not measured: {one.missing}", style="yellow") for one in outcomes if one.missing]
    return Group(table, *left_out)


def experiments_table(named: Sequence[tuple[str, str, bool]]) -> Table:
    """Name, question, and whether `--quick` has it."""
    table = figure_table("Experiments")
    for column in ("name", "question", "quick"):
        table.add_column(column)
    for name, question, quick in named:
        table.add_row(name, question, "yes" if quick else "no")
    return table


def reproduction_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The object that `geotrain reproduce --json` prints."""
    return {
        "quick": any(one.quick for one in outcomes),
        "took_s": sum(one.took_s for one in outcomes),
        "experiments": [_outcome_json(one) for one in outcomes],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "title": outcome.experiment.title,
        "took_s": outcome.took_s,
        "missing": outcome.missing or None,
        "guesses": list(outcome.experiment.guesses),
        "claims": [
            {
                "says": verdict.claim.says,
                "published": verdict.claim.value,
                "unit": verdict.claim.unit,
                "ours": verdict.ours,
                "verdict": verdict.word,
                "trust": verdict.claim.trust,
                "source": verdict.claim.source,
            }
            for verdict in outcome.verdicts
        ],
        "findings": [finding.dump() for finding in outcome.findings],
    }


def where(chart: Chart) -> str:
    """Which of the findings a chart shows, if not all."""
    return "".join(f", {name} {text(value)}" for name, value in chart.where.items())


def pivot(chart: Chart, findings: Sequence[Finding]) -> tuple[list[str], list[list[str]]]:
    """The chart as a table: headings and rows; empty where nothing was found."""
    lines = points(chart, findings)
    places = list(dict.fromkeys(place for line in lines.values() for place in line))
    numbered = are_long(places)
    rows = [
        [f"{index}. {place}" if numbered else place, *(_cell(line.get(place)) for line in lines.values())]
        for index, place in enumerate(places, start=1)
    ]
    return [chart.over.replace("_", " "), *(name or chart.figure for name in lines)], rows


def _cell(one: Finding | None) -> str:
    return "" if one is None else number(one.value, one.unit) + _spread(one)


def reproduction_markdown(outcomes: Sequence[Outcome], *, made_with: str) -> str:
    """docs/results.md: all claims, then each experiment's figures."""
    return "\n".join(_markdown(outcomes, made_with)) + "\n"


def _markdown(outcomes: Sequence[Outcome], made_with: str) -> Iterator[str]:
    took = format_seconds(sum(one.took_s for one in outcomes))
    yield "# Results"
    yield ""
    yield f"Written by `{made_with}`, which took {took}. Every number with the command that prints it is in"
    yield "`out/reproduce/index.html`. Measured numbers carry the least and the most of their repetitions."
    yield ""
    yield "| experiment | claim | claimed | ours | verdict | trust |"
    yield "|---|---|---|---|---|---|"
    for outcome in outcomes:
        for verdict in outcome.verdicts:
            claim = verdict.claim
            cells = [outcome.name, claim.says, claimed(claim), found(verdict), verdict.word, claim.trust]
            yield _row(cells)
    yield ""
    yield "Trust: " + "; ".join(f"*{word}*: {meaning}" for word, meaning in TRUST.items()) + "."
    for part, heading in PARTS.items():
        told = [one for one in outcomes if one.experiment.part == part]
        if told:
            yield ""
            yield f"## {heading}"
        for outcome in told:
            yield from _section(outcome)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section(outcome: Outcome) -> Iterator[str]:
    experiment = outcome.experiment
    yield ""
    yield f"### {experiment.title}"
    yield ""
    yield experiment.question
    if experiment.guesses:
        yield ""
        yield "Conditions that are guesses: " + "; ".join(experiment.guesses) + "."
    if outcome.missing:
        yield ""
        yield f"Not measured: {outcome.missing}"
    for chart in experiment.charts:
        headings, rows = pivot(chart, outcome.findings)
        if rows:
            yield ""
            yield f"{chart.figure}{where(chart)}:"
            yield ""
            yield _row(headings)
            yield "|" + "---|" * len(headings)
            yield from map(_row, rows)
