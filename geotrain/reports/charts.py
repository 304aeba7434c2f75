"""What SVG charts are made of, here so that reports need no library and no network."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a stacked bar; `key` names its colour, the class `c-<key>`."""

    key: str
    label: str
    value: float


def stacked_bar(
    parts: Sequence[Part], *, total: float, title: str, description: str, limit: float | None = None
) -> str:
    """A bar without text that stretches to its container; `limit` draws a line. Texts belong beside it."""
    pieces, x = [], 0.0
    scale = 1000 / total if total > 0 else 0.0
    for part in parts:
        width = part.value * scale
        if width > 0:
            place = f'x="{x:.2f}" y="0" width="{width:.2f}" height="20"'
            pieces.append(f'<rect class="c-{part.key}" {place}><title>{escape(part.label)}</title></rect>')
        x += width
    if limit is not None:
        pieces.append(f'<rect class="limit" x="{min(limit * scale, 995):.2f}" y="0" width="5" height="20"/>')
    return (
        '<svg class="bar" role="img" viewBox="0 0 1000 20" preserveAspectRatio="none">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        f'<rect class="track" x="0" y="0" width="1000" height="20"/>{"".join(pieces)}</svg>'
    )


STYLE = """
svg { background: #ffffff; font-family: system-ui, sans-serif; }
text { fill: #1b1f24; font-size: 14px; }
.quiet { fill: #57606a; font-size: 12px; }
.head { font-size: 17px; font-weight: 600; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.bar { fill: #4a8fdb; }
.best { fill: #2f9e62; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171c; }
  text { fill: #e6e9ee; }
  .quiet { fill: #a3adba; }
  .grid { stroke: #39414d; }
  .bar { fill: #5a9be3; }
  .best { fill: #46b87a; }
}
"""


class LinearScale:
    """From zero to the slowest."""

    label = "step time (linear scale)"

    def __init__(self, slowest: float) -> None:
        self._slowest = slowest

    def place(self, time_s: float) -> float:
        return time_s / self._slowest

    def ticks(self) -> list[float]:
        raw = self._slowest / 4
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
        return [step * number for number in range(int(self._slowest / step * 1.001) + 1)]


_COLOURS = [
    ("#2f6fbd", "#6aa9f0"), ("#2f9e62", "#46b87a"), ("#b35900", "#e0954f"),
    ("#8250df", "#b392f0"), ("#c2255c", "#f783ac"), ("#57606a", "#a3adba"),
]  # fmt: skip
_DASHES = ("none", "6 4", "2 3")


def round_ticks(highest: float) -> list[float]:
    """From 0 in four or five round steps to at least the highest."""
    raw = (highest or 1.0) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    return [step * number for number in range(math.ceil((highest or 1.0) / step - 1e-9) + 1)]


def line_styles(number: int) -> str:
    """CSS of that many lines (l0, l1, ...) and their points (p0, p1, ...), for light and dark."""
    light: list[str] = []
    dark: list[str] = []
    for index in range(number):
        colours = _COLOURS[index % len(_COLOURS)]
        dash = _DASHES[index // len(_COLOURS) % len(_DASHES)]
        for rules, colour, ground in ((light, colours[0], "#ffffff"), (dark, colours[1], "#14171c")):
            rules.append(f".l{index} {{ stroke: {colour}; stroke-width: 2; fill: none; stroke-dasharray: {dash}; }}")
            rules.append(f".p{index} {{ fill: {colour}; stroke: {ground}; stroke-width: 1; }}")
    return "\n".join([*light, "@media (prefers-color-scheme: dark) {", *dark, "}\n"])
