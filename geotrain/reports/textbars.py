"""Bars made of characters and tables of figures, readable with and without colour."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from geotrain.reports.words import Figure

FULL, EMPTY = "█", "░"


def bar(fraction: float, width: int, style: str = "") -> Text:
    """`fraction` of `width` cells filled; only nothing looks empty and only all looks full."""
    lowest, highest = (1 if fraction > 0 else 0), (width if fraction >= 1 else width - 1)
    filled = max(lowest, min(highest, round(fraction * width)))
    return Text(FULL * filled, style) + Text(EMPTY * (width - filled), "dim")


def cells(values: Sequence[float], width: int) -> list[int]:
    """Whole cells for each value, in proportion, `width` in all: the largest remainders get the odd ones."""
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    whole = [int(part) for part in exact]
    by_remainder = sorted(range(len(values)), key=lambda index: (whole[index] - exact[index], index))
    for index in by_remainder[: width - sum(whole)]:
        whole[index] += 1
    return whole


def stacked(parts: Sequence[tuple[str, float, str]], width: int) -> Text:
    """Letter, value and style of each part as one bar: FFFFRRRBBBBBBww....."""
    text = Text(no_wrap=True)
    for (letter, _, style), number in zip(parts, cells([value for _, value, _ in parts], width), strict=True):
        text.append(letter * number, style)
    return text


def figure_table(title: str) -> Table:
    """An empty table in the one look that all of them have."""
    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )


def headline_table(figures: Sequence[Figure]) -> Table:
    """What matters most, a line each."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column()
    for figure in figures:
        table.add_row(figure.label, figure.value, Text(figure.note))
    return table
