"""What people and machines see of a step: tables, JSON, Perfetto trace, HTML report, charts. Reads Results only."""

from geotrain.reports.charts import comparison_svg
from geotrain.reports.comparison import Comparison, ComparisonRow, compared, comparison_json, comparison_table
from geotrain.reports.html import html_report
from geotrain.reports.machine import result_json
from geotrain.reports.perfetto import perfetto_trace, write_perfetto
from geotrain.reports.proof import exact_json, exact_sentence
from geotrain.reports.robustness import spread_json, spread_table
from geotrain.reports.scatter import validation_svg
from geotrain.reports.summary import summary_table
from geotrain.reports.validation import validation_json, validation_table

__all__ = [
    "Comparison",
    "ComparisonRow",
    "compared",
    "comparison_json",
    "comparison_svg",
    "comparison_table",
    "exact_json",
    "exact_sentence",
    "html_report",
    "perfetto_trace",
    "result_json",
    "spread_json",
    "spread_table",
    "summary_table",
    "validation_json",
    "validation_svg",
    "validation_table",
    "write_perfetto",
]
