"""Schedules: side by side, and as lists for other frameworks."""

from geotrain.reports.schedule.chart import comparison_svg
from geotrain.reports.schedule.comparison import Comparison, ComparisonRow, compared, comparison_json, comparison_table
from geotrain.reports.schedule.export import pipelines, schedule_csv, schedule_json, schedule_text

__all__ = [
    "Comparison",
    "ComparisonRow",
    "compared",
    "comparison_json",
    "comparison_svg",
    "comparison_table",
    "pipelines",
    "schedule_csv",
    "schedule_json",
    "schedule_text",
]
