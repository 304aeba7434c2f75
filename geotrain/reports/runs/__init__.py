"""A run beside its simulation: mean times per sort of span, table, JSON, chart."""

from geotrain.reports.runs.chart import runs_svg
from geotrain.reports.runs.comparison import RunComparison, run_comparison_json, run_comparison_table

__all__ = [
    "RunComparison",
    "run_comparison_json",
    "run_comparison_table",
    "runs_svg",
]
