"""How good `auto` is over a grid of settings: `python -m benchmarks.grid` rewrites docs/grid.{csv,svg,md}.

240 settings, spread evenly over all combinations of the values below. Two pipelines per cell share their WAN bandwidth;
stages are equal, with no recompute, so memory limits bite; every schedule opens as many connections as help.
"""

import csv
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from geotrain.errors import InputError
from geotrain.reproduction.grid import OTHERS, VALUES, Setting, plan_of, settings
from geotrain.simulation import simulate

DOCS = Path(__file__).parents[1] / "docs"
SETTINGS = 240


def run_setting(setting: Setting) -> dict[str, Any]:
    """Steps of all schedules at one setting, as multiples of the bound; empty where a schedule does not fit."""
    result = simulate(plan_of(setting, "auto"))
    row = {**setting, "bound_s": result.bound.total_s, "binding": result.bound.binding, "auto": result.step_over_bound}
    for schedule in OTHERS:
        try:
            row[schedule] = simulate(plan_of(setting, schedule)).step_time_s / result.bound.total_s
        except InputError:
            row[schedule] = ""
    return row


def main() -> None:
    """Run the grid on all cores and write what came out."""
    with ProcessPoolExecutor() as pool:
        rows = []
        for row in pool.map(run_setting, islice(settings(), SETTINGS)):
            rows.append(row)
            print(f"\r{len(rows)}/{SETTINGS}", end="", file=sys.stderr)
    with (DOCS / "grid.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()})
    table = [("auto / bound", [row["auto"] for row in rows], len(rows))]
    for schedule in OTHERS:
        gains = [row[schedule] / row["auto"] for row in rows if row[schedule] != ""]
        table.append((f"{schedule} / auto", gains, len(gains)))
    (DOCS / "grid.svg").write_text(chart(table), encoding="utf-8")
    (DOCS / "grid.md").write_text(page(table), encoding="utf-8")


def _spread(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    deciles = quantiles(values, n=10, method="inclusive")
    return min(values), deciles[0], median(values), deciles[8], max(values)


def page(table: Sequence[tuple[str, Sequence[float], int]]) -> str:
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
        "| | settings | least | p10 | median | p90 | most |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, values, number in table:
        lines.append(f"| {name} | {number} | " + " | ".join(f"{value:.3f}" for value in _spread(values)) + " |")
    return "\n".join([*lines, "", "![Distributions](grid.svg)", "", "Made by `python -m benchmarks.grid`.", ""])


def chart(table: Sequence[tuple[str, Sequence[float], int]]) -> str:
    """One line per distribution: from least to most, a box from p10 to p90, a mark at the median."""
    left, width, row_height, top = 150, 560, 40, 50
    most = max(max(values) for _, values, _ in table) * 1.02

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
    for index, (name, values, _) in enumerate(table):
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
