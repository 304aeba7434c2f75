"""How good `auto` is over a grid of settings: `python -m benchmarks.grid` rewrites docs/grid.{csv,svg,md}.

240 settings, spread evenly over all combinations of the values below. Two pipelines per cell; stages are equal, with no
recompute, so memory limits bite. Every schedule opens as many connections as help and pools the cell's WAN bandwidth
where that makes it faster, whether it was published with that or not. `interleaved` is not played: a stage has one
layer. (Cut into 2 or 4 chunks it took 1.01 to 3.2 times as long as `auto` in 193 settings; others it does not fit.)
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from geotrain.errors import InputError
from geotrain.reproduction.grid import OTHERS, SHARINGS, VALUES, Setting, plan_of, settings
from geotrain.simulation import simulate

DOCS = Path(__file__).parents[1] / "docs"
SETTINGS = 240

Ratios = tuple[str, Sequence[float]]
"""A name, and how many times as long at each setting."""


def run_setting(setting: Setting) -> dict[str, Any]:
    """Steps of all schedules at one setting by sharing, as multiples of the bound; empty where one does not fit."""
    result = simulate(plan_of(setting, "auto"))
    row = {**setting, "bound_s": result.bound.total_s, "binding": result.bound.binding, "auto": result.step_over_bound}
    for schedule, sharing in product(OTHERS, SHARINGS):
        try:
            step_s = simulate(plan_of(setting, schedule, sharing)).step_time_s
            row[f"{schedule} {sharing}"] = step_s / result.bound.total_s
        except InputError:
            row[f"{schedule} {sharing}"] = ""
    return row


def main() -> None:
    """Run the grid on all cores and write what came out."""
    with ProcessPoolExecutor() as pool:
        rows = []
        for row in pool.map(run_setting, islice(settings(), SETTINGS)):
            rows.append(row)
            print(f"\r{len(rows)}/{SETTINGS}", end="", file=sys.stderr)
    write(rows)


def write(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows, the page and its picture."""
    with (DOCS / "grid.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()})
    best = [
        ("auto / bound", [row["auto"] for row in rows]),
        ratios(rows, "best of these", OTHERS, SHARINGS),
        *(ratios(rows, schedule, [schedule], SHARINGS) for schedule in OTHERS),
    ]
    apart = [ratios(rows, schedule, [schedule], SHARINGS[:1]) for schedule in OTHERS if schedule != "atlas"]
    (DOCS / "grid.svg").write_text(chart(best), encoding="utf-8")
    (DOCS / "grid.md").write_text(page(best, apart), encoding="utf-8")


def ratios(rows: Sequence[Mapping[str, Any]], name: str, schedules: Sequence[str], sharings: Sequence[str]) -> Ratios:
    """Steps of the best of these schedules and sharings over those of auto, where one fits."""
    found = []
    for row in rows:
        steps = [step for way in product(schedules, sharings) if (step := row[" ".join(way)]) != ""]
        found += [min(steps) / row["auto"]] if steps else []
    return f"{name} / auto", found


def _spread(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    deciles = quantiles(values, n=10, method="inclusive")
    return min(values), deciles[0], median(values), deciles[8], max(values)


def page(best: Sequence[Ratios], apart: Sequence[Ratios]) -> str:
    """The page of docs/ about the grid."""
    lines = [
        "# How good `auto` is",
        "",
        *(f"{__doc__ or ''}".split("\n\n")[1].strip().splitlines()),
        "",
        *(f"- {name}: {', '.join(map(str, values))}" for name, values in VALUES.items()),
        "",
        "`c` is a transfer's time over a pair divided by a forward's; `memory` is how many microbatches' activations",
        "fit on a GPU (`all`: enough for any schedule). Hops are at most one less than stages. Every row is in",
        "[grid.csv](grid.csv), each step as a multiple of its lower bound; a schedule that does not fit has none.",
        "",
        *_lines(best),
        "",
        "![Distributions](grid.svg)",
        "",
        "`auto` plays the named schedules first, so it is never slower; what its search adds to the best of them is",
        "little, for `zero-bubble-2p` with pooled bandwidth leaves little to gain. As published, each pipeline of a",
        "cell with its own pair, against `auto` with pooled bandwidth:",
        "",
        *_lines(apart),
        "",
        "Made by `python -m benchmarks.grid`.",
        "",
    ]
    return "\n".join(lines)


def _lines(table: Sequence[Ratios]) -> list[str]:
    rows = [
        f"| {name} | {len(values)} | " + " | ".join(f"{value:.3f}" for value in _spread(values)) + " |"
        for name, values in table
    ]
    return ["| | settings | least | p10 | median | p90 | most |", "|---|---|---|---|---|---|---|", *rows]


def chart(table: Sequence[Ratios]) -> str:
    """One line per distribution: from least to most, a box from p10 to p90, a mark at the median."""
    left, width, row_height, top = 180, 560, 40, 50
    most = max(max(values) for _, values in table) * 1.02

    def x(value: float) -> float:
        return left + (min(value, most) - 1) / (most - 1) * width

    height = top + row_height * len(table) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {height}" role="img"',
        ' font-family="sans-serif" font-size="13">',
        "<title>auto against its lower bound and against named schedules</title>",
        "<desc>Ratios over 240 settings: whisker from least to most, box from p10 to p90, mark at the median.</desc>",
        "<style>text{fill:#222}.l{stroke:#8886}.w{stroke:#888}.b{fill:#4a8fdc}.m{stroke:#111;stroke-width:3}"
        "@media(prefers-color-scheme:dark){text{fill:#eee}.m{stroke:#fff}}</style>",
        f'<text x="10" y="24" font-size="16" font-weight="bold">Step time ratios over {SETTINGS} settings</text>',
    ]
    ticks = [1 + (most - 1) * i / 5 for i in range(6)]
    for tick in ticks:
        parts.append(f'<line class="l" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top - 8}" y2="{height - 34}"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{height - 16}" text-anchor="middle">{tick:.2f}</text>')
    for index, (name, values) in enumerate(table):
        y = top + row_height * index + row_height / 2
        least, low, middle, high, largest = _spread(values)
        parts += [
            f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{name}</text>',
            f'<line class="w" x1="{x(least):.1f}" x2="{x(largest):.1f}" y1="{y}" y2="{y}"/>',
            f'<rect class="b" x="{x(low):.1f}" y="{y - 9}" width="{max(1.0, x(high) - x(low)):.1f}" height="18"/>',
            f'<line class="m" x1="{x(middle):.1f}" x2="{x(middle):.1f}" y1="{y - 12}" y2="{y + 12}"/>',
            f'<text x="{x(min(largest, most)) + 8:.1f}" y="{y + 4}">{middle:.3f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
