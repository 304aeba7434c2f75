"""How a schedule stands up to variation, for people and for machines."""

from typing import Any

from rich.table import Table

from geotrain.reports.textbars import figure_table
from geotrain.simulation import Spread
from geotrain.units import format_seconds, plural


def spread_table(spread: Spread) -> Table:
    """Quantiles of the step under variation, beside the step without."""
    jitter = spread.jitter
    table = figure_table(
        f"Under variation: {jitter.distribution}, compute {jitter.compute:.3g}, WAN {jitter.wan:.3g}, "
        f"step {jitter.step:.3g}, {plural(jitter.samples, 'step')}, seed {jitter.seed}"
    )
    for column in ("", "step", "longer by"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    rows = {"mean": spread.mean_s, "p50": spread.p50_s, "p95": spread.p95_s, "p99": spread.p99_s}
    for name, seconds in rows.items():
        table.add_row(name, format_seconds(seconds), f"{seconds / spread.steady_s - 1:.1%}")
    return table


def spread_json(spread: Spread) -> dict[str, Any]:
    """The same as plain data."""
    jitter = spread.jitter
    return {
        "step_time_s": {"mean": spread.mean_s, "p50": spread.p50_s, "p95": spread.p95_s, "p99": spread.p99_s},
        "steady_s": spread.steady_s,
        "compute": jitter.compute,
        "wan": jitter.wan,
        "step": jitter.step,
        "distribution": jitter.distribution,
        "samples": jitter.samples,
        "seed": jitter.seed,
    }
