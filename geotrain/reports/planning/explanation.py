"""Why this plan, for people: in the terminal and as a section of the HTML report."""

from collections.abc import Mapping, Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geotrain.planner.answer import Answer, Scored
from geotrain.planner.explain import Explanation
from geotrain.planner.sensitivity import Change
from geotrain.planner.survive import Fallback
from geotrain.planner.use import kind_of
from geotrain.reports.charts import Part, stacked_bar
from geotrain.reports.html.sections import bar_row, section, table
from geotrain.reports.planning.answer import (
    OTHER_HEADINGS,
    datacenter_rows,
    figure_rows,
    other_rows,
    search_sentence,
    training_sentences,
)
from geotrain.reports.planning.frontier import frontier_svg
from geotrain.reports.planning.placement import caption, placement_svg
from geotrain.reports.textbars import bar, figure_table
from geotrain.reports.words import count, money
from geotrain.simulation.result import Result
from geotrain.units import format_seconds


def explanation_table(explanation: Explanation) -> RenderableType:
    """What binds, what more would bring, why the others lost."""
    lost = [f"{rival.name}: {rival.reason}" for rival in explanation.rivals]
    parts: list[RenderableType] = [
        Text("What binds", style="bold"),
        _bullets(explanation.binds),
        Padding(_changes(explanation.changes), (1, 0, 0, 0)) if explanation.changes else Text(f"\n{_NO_CHANGES}"),
    ]
    if lost:
        parts += [Text("\nWhy the others lost", style="bold"), _bullets(lost)]
    return Group(*parts)


def _bullets(sentences: Sequence[str]) -> Table:
    grid = Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row("-", Text(sentence))
    return grid


_CHANGES = "What one more would bring, each planned anew"
_NO_CHANGES = "What one more would bring was not looked for."


def _changes(changes: Sequence[Change]) -> Table:
    shown = figure_table(_CHANGES)
    shown.add_column("change")
    shown.add_column("", no_wrap=True)
    for column in ("tokens/s", "step", "cost/B tokens"):
        shown.add_column(column, justify="right", no_wrap=True)
    most = max(change.gain for change in changes) or 1.0
    for change in changes:
        length = bar(max(0.0, change.gain / most), 12, "green")
        figures = (f"{change.gain:+.1%}", format_seconds(change.step_time_s), money(change.cost_per_billion_tokens))
        shown.add_row(Text(change.what), length, *figures)
    return shown


def fallback_table(fallbacks: Sequence[Fallback]) -> RenderableType:
    """What the loss of each data center would cost."""
    shown = figure_table("If a data center is lost")
    shown.add_column(_FALLBACK[0], no_wrap=True, max_width=16, overflow="ellipsis")
    shown.add_column(_FALLBACK[1])
    for column in _FALLBACK[2:]:
        shown.add_column(column, justify="right", no_wrap=True)
    for row in fallback_rows(fallbacks):
        shown.add_row(*map(Text, row))
    return Group(shown, _bullets(_reasons(fallbacks)))


_FALLBACK = ["lost", "fall back to", "tokens/s", "loss", "GPUs idle"]


def _reasons(fallbacks: Sequence[Fallback]) -> list[str]:
    return [f"without {fallback.lost} nothing fits: {fallback.reason}" for fallback in fallbacks if fallback.reason]


def fallback_rows(fallbacks: Sequence[Fallback]) -> list[list[str]]:
    """Lost data center, plan, tokens/s, share of them that is lost, idle GPUs of those left."""
    return [
        [
            fallback.lost,
            kind_of(found.best.result.plan) if (found := fallback.answer) else "nothing fits",
            count(found.best.result.tokens_per_s) if found else "0",
            f"{max(0.0, fallback.tokens_per_s_lost):.1%}",
            f"{fallback.gpus_idle} of {fallback.gpus_left}",
        ]
        for fallback in fallbacks
    ]


def planning_html(
    answer: Answer,
    explanation: Explanation,
    fallbacks: Sequence[Fallback] = (),
    *,
    pareto: bool = False,
    runnable: Scored | None = None,
) -> str:
    """The report's sections about the choice; a plan that cannot be trained is marked first."""
    reasons = {one.dc: one.reason for one in explanation.worth}
    refused = training_sentences(answer.best, runnable)
    parts = [f'<div class="refused">{_section("training", "Simulated only", _items(refused))}</div>'] * bool(refused)
    parts += [
        section("placement", "Where the stages are", _placement(answer.best.result, reasons)),
        _section("choice", "The choice", _choice(answer, explanation)),
        _section("binds", "What binds", _items(explanation.binds)),
        _section("changes", _CHANGES, _change_bars(explanation.changes)),
    ]
    if explanation.rivals:
        lost = [f"{rival.name}: {rival.reason}" for rival in explanation.rivals]
        rows = table(OTHER_HEADINGS, other_rows(answer)) if answer.others else ""
        parts.append(_section("rivals", "Why the others lost", rows + _items(lost)))
    if fallbacks:
        rows = table(_FALLBACK, fallback_rows(fallbacks), text=_FALLBACK[1:2]) + _items(_reasons(fallbacks))
        parts.append(_section("survive", "If a data center is lost", rows))
    if pareto:
        parts.append(_section("frontier", "Time against cost", frontier_svg(answer, in_page=True)))
    return "\n".join(parts)


def _placement(result: Result, reasons: Mapping[str, str]) -> str:
    picture = placement_svg(result, reasons, in_page=True)
    return f'<p class="note">{escape(caption(result))}</p><div class="wide">{picture}</div>'


def _section(name: str, heading: str, content: str) -> str:
    return section(name, heading, f'<div class="wide">{content}</div>')


def _items(sentences: Sequence[str]) -> str:
    return f'<ul class="sentences">{"".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)}</ul>'


def _choice(answer: Answer, explanation: Explanation) -> str:
    figures = table(["figure", "this plan", "published algorithm", "gain"], figure_rows(answer))
    headings = ["data center", "GPUs used", "GPU", "stages", "layers", "worth"]
    centers = table(headings, datacenter_rows(answer.best, explanation.worth), text=["stages", "worth"])
    said = [f"The next data center: {explanation.next_datacenter}", search_sentence(answer)]
    return figures + centers + _items(said)


def _change_bars(changes: Sequence[Change]) -> str:
    if not changes:
        return f"<p>{_NO_CHANGES}</p>"
    most = max(change.gain for change in changes) or 1.0
    rows = []
    for change in changes:
        gain = f"{change.gain:+.1%} tokens/s"
        parts = [Part(key="optimizer", label=gain, value=max(0.0, change.gain))]
        chart = stacked_bar(parts, total=most, title=change.what, description=gain)
        figures = (
            f"step {format_seconds(change.step_time_s)}, {money(change.cost_per_billion_tokens)} per billion tokens"
        )
        rows.append(bar_row(change.what, "", chart, f"{gain}, {figures}"))
    return f'<ul class="bars">{"".join(rows)}</ul>'
