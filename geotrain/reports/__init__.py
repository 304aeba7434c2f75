"""What people and machines see: tables, JSON, Perfetto trace, HTML report, charts. Simulates and measures nothing."""

from geotrain.reports.charts import comparison_svg
from geotrain.reports.comparison import Comparison, ComparisonRow, compared, comparison_json, comparison_table
from geotrain.reports.explanation import explanation_table, fallback_table, planning_html
from geotrain.reports.frontier import frontier_svg, frontier_table
from geotrain.reports.html import html_report
from geotrain.reports.machine import result_json
from geotrain.reports.perfetto import perfetto_trace, write_perfetto
from geotrain.reports.placement import placement_svg
from geotrain.reports.plan_json import answer_json
from geotrain.reports.planning import answer_table, plan_heading
from geotrain.reports.proof import exact_json, exact_sentence
from geotrain.reports.robustness import spread_json, spread_table
from geotrain.reports.scatter import validation_svg
from geotrain.reports.summary import summary_table
from geotrain.reports.validation import validation_json, validation_table

__all__ = [
    "Comparison",
    "ComparisonRow",
    "answer_json",
    "answer_table",
    "compared",
    "comparison_json",
    "comparison_svg",
    "comparison_table",
    "exact_json",
    "exact_sentence",
    "explanation_table",
    "fallback_table",
    "frontier_svg",
    "frontier_table",
    "html_report",
    "perfetto_trace",
    "placement_svg",
    "plan_heading",
    "planning_html",
    "result_json",
    "spread_json",
    "spread_table",
    "summary_table",
    "validation_json",
    "validation_svg",
    "validation_table",
    "write_perfetto",
]
