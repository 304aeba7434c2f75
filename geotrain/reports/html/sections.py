"""The parts of pages that are text, tables and bars. Everything inserted is escaped here."""

from collections.abc import Iterable, Sequence
from html import escape

from geotrain.reports.words import Figure


def summary(figures: Iterable[Figure]) -> str:
    """The section of the headline figures."""
    cards = "".join(
        f'<div class="card"><dt>{escape(figure.label)}</dt><dd><b>{escape(figure.value)}</b>'
        f"<small>{escape(figure.note)}</small></dd></div>"
        for figure in figures
    )
    return f'<section aria-label="Summary"><dl class="cards">{cards}</dl></section>'


def section(key: str, heading: str, body: str) -> str:
    """A part of the page under its heading."""
    return f'<section aria-labelledby="h-{key}"><h2 id="h-{key}">{escape(heading)}</h2>\n{body}\n</section>'


def legend(entries: Sequence[tuple[str, str, str]]) -> str:
    """Colour key, label and value of each entry."""
    items = "".join(
        '<li><svg class="key" viewBox="0 0 10 10" aria-hidden="true">'
        f'<rect class="c-{key}" width="10" height="10"/></svg>'
        f"{escape(label)}{f' <b>{escape(value)}</b>' if value else ''}</li>"
        for key, label, value in entries
    )
    return f'<ul class="legend">{items}</ul>'


def bar_row(name: str, detail: str, chart: str, value: str) -> str:
    """An entry of a list of bars: name, bar, value."""
    return (
        f'<li><span class="name">{escape(name)} <small>{escape(detail)}</small></span>{chart}'
        f'<span class="value">{escape(value)}</span></li>'
    )


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, text: Sequence[str] = (), ours: str | None = None
) -> str:
    """A table whose rows become blocks on a narrow screen; the first column is text, the others figures.

    `text` names further columns that are text, `ours` the row that stands out.
    """

    def look(heading: str) -> str:
        return ' class="text"' if heading in text else ""

    head = "".join(f'<th scope="col"{look(heading)}>{escape(heading)}</th>' for heading in headings)
    body = "".join(
        ('<tr class="ours">' if row[0] == ours else "<tr>")
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(
            f'<td{look(heading)} data-label="{escape(heading)}">{escape(cell)}</td>'
            for heading, cell in zip(headings[1:], row[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
