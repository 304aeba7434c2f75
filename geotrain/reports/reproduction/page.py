"""The page of `geotrain reproduce`: claims beside ours, experiments with their charts, numbers with their commands."""

from collections.abc import Sequence
from html import escape

from geotrain.reports.html.page import page
from geotrain.reports.html.sections import section, summary, table
from geotrain.reports.reproduction.chart import number, reproduction_svg, text
from geotrain.reports.reproduction.table import PARTS, TRUST, claimed, found, pivot, where
from geotrain.reports.words import Figure
from geotrain.reproduction import Chart, Finding, Outcome, Verdict
from geotrain.units import format_seconds

_CSS = """
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
.plot { width: 100%; height: auto; border: 1px solid var(--line); border-radius: 8px; }
.guess { border-left: 3px solid var(--backward); padding-left: 0.6rem; margin: 0.3rem 0; }
.holds { color: var(--optimizer); font-weight: 600; } .more, .less { color: var(--backward); font-weight: 600; }
.not-measured { color: var(--quiet); }
.claims td:nth-child(4), .claims td:nth-child(5) { white-space: nowrap; }
code { font-size: 0.8rem; overflow-wrap: anywhere; } details { margin: 0.8rem 0; } summary { cursor: pointer; }
.claims td, .claims th, .numbers td, .numbers th { text-align: left; vertical-align: top; }
"""


def reproduction_html(outcomes: Sequence[Outcome]) -> str:
    """The text of the file; it needs no other."""
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    parts = [summary(_headline(outcomes, verdicts)), section("claims", "Claimed and found", _claims(outcomes))]
    for part, heading in PARTS.items():
        told = [one for one in outcomes if one.experiment.part == part]
        parts += [f"<h2>{escape(heading)}</h2>"] if told else []
        parts += [_experiment(outcome) for outcome in told]
    quick = " This was a quick run: smaller grids, and nothing measured." if any(one.quick for one in outcomes) else ""
    return page(
        title="geotrain: the published results again",
        heading=_heading(verdicts),
        lead=[
            "Each published figure of Atlas and BubbleTea (arXiv 2411.14458) beside what this software finds. Only the "
            "paper's abstract was at hand: figures marked memory are unverified, and most conditions are guesses, "
            f"marked as such.{quick}"
        ],
        parts=parts,
        css=_CSS,
    )


def _heading(verdicts: Sequence[Verdict]) -> str:
    said = []
    for words, trusts in (
        ("published figures", ("page",)),
        ("remembered ones", ("memory", "derived")),
        ("aims of our own", ("none",)),
    ):
        those = [verdict for verdict in verdicts if verdict.claim.trust in trusts]
        said += [f"{sum(one.word == 'holds' for one in those)} of {len(those)} {words}"] if those else []
    return f"{', '.join(said)} hold" if said else "Experiments without claims"


def _headline(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> list[Figure]:
    certain = [
        Figure(label=v.claim.says, value=found(v), note=f"published {number(v.claim.value, v.claim.unit)}: {v.word}")
        for v in verdicts
        if v.claim.trust == "page"
    ]
    numbers = sum(len(one.findings) for one in outcomes)
    took = format_seconds(sum(one.took_s for one in outcomes))
    return [*certain, Figure(label="numbers", value=f"{numbers:,}", note=f"of {len(outcomes)} experiments in {took}")]


def _claims(outcomes: Sequence[Outcome]) -> str:
    rows = "".join(
        f'<tr><th scope="row"><a href="#e-{escape(outcome.name)}">{escape(verdict.claim.says)}</a></th>'
        f'<td data-label="claimed">{escape(claimed(verdict.claim))}</td>'
        f'<td data-label="ours">{escape(found(verdict))}</td>'
        f'<td data-label="verdict" class="{verdict.word.replace(" ", "-")}">{verdict.word}</td>'
        f'<td data-label="trust">{verdict.claim.trust}</td>'
        f'<td data-label="source">{escape(verdict.claim.source)}</td>'
        f'<td data-label="at">{escape(_at(verdict))}</td></tr>'
        for outcome in outcomes
        for verdict in outcome.verdicts
    )
    heads = "".join(
        f'<th scope="col">{head}</th>'
        for head in ("claim", "claimed", "ours", "verdict", "trust", "source", "ours is at")
    )
    trust = "; ".join(f"{word}: {meaning}" for word, meaning in TRUST.items())
    return (
        f'<div class="claims wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="note">Trust: {trust}. Verdict: the claim holds, or ours is more or less than claimed.</p>'
    )


def _at(verdict: Verdict) -> str:
    if not verdict.findings:
        return ""
    if len(verdict.findings) > 1:
        return f"{verdict.claim.ours.take} of {len(verdict.findings)}"
    return _setting(verdict.findings[0])


def _setting(finding: Finding) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {text(value)}" for name, value in finding.row.items())


def _experiment(outcome: Outcome) -> str:
    experiment = outcome.experiment
    parts = [f"<p>{escape(experiment.question)}</p>"]
    if experiment.known:
        parts.append(f"<p>Known conditions: {escape('; '.join(experiment.known))}.</p>")
    if experiment.guesses:
        said = escape("; ".join(experiment.guesses))
        parts.append(f'<p class="guess"><b>Guesses:</b> {said}.</p>')
    if outcome.missing:
        parts.append(f'<p class="less">Not measured: {escape(outcome.missing)}</p>')
    plots = [reproduction_svg(chart, outcome.findings) for chart in experiment.charts]
    parts.append(f'<div class="plots">{"".join(plots)}</div>')
    parts += [_as_table(chart, outcome.findings) for chart in experiment.charts]
    parts.append(_numbers(outcome))
    return f'<section id="e-{escape(outcome.name)}"><h3>{escape(experiment.title)}</h3>{"".join(parts)}</section>'


def _as_table(chart: Chart, findings: Sequence[Finding]) -> str:
    """Open where the chart shows only the numbers of its words."""
    headings, rows = pivot(chart, findings)
    if not rows:
        return ""
    shown = " open" if rows[0][0].startswith("1. ") else ""
    words = f"{chart.figure}{where(chart)}, as a table"
    return f"<details{shown}><summary>{escape(words)}</summary>{table(headings, rows)}</details>"


def _numbers(outcome: Outcome) -> str:
    """Every number, its seed and its commands."""
    rows = "".join(_number(finding) for finding in outcome.findings)
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("setting", "figure", "value", "seed", "command"))
    return (
        f"<details><summary>All {len(outcome.findings)} numbers and their commands</summary>"
        f'<div class="numbers wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>'
        if outcome.findings
        else ""
    )


def _number(finding: Finding) -> str:
    value = number(finding.value, finding.unit)
    if finding.samples:
        unit = "%" if finding.unit == "%" else ""
        value += f" ({', '.join(number(sample, unit) for sample in finding.samples)})"
    seed = "" if finding.seed is None else str(finding.seed)
    commands = "<br>over<br>".join(f"<code>{escape(source.command)}</code>" for source in finding.sources)
    cells = (("figure", finding.figure), ("value", value), ("seed", seed))
    return (
        f'<tr><th scope="row">{escape(_setting(finding))}</th>'
        + "".join(f'<td data-label="{name}">{escape(cell)}</td>' for name, cell in cells)
        + f'<td data-label="command">{commands}</td></tr>'
    )
