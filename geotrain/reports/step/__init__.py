"""One step, simulated or measured: summary, JSON, page, Perfetto trace; how it stands up to variation and to proof."""

from geotrain.reports.step.machine import result_json
from geotrain.reports.step.page import html_report
from geotrain.reports.step.perfetto import perfetto_trace, perfetto_traces, write_perfetto
from geotrain.reports.step.proof import exact_json, exact_sentence
from geotrain.reports.step.robustness import spread_json, spread_table
from geotrain.reports.step.summary import summary_table

__all__ = [
    "exact_json",
    "exact_sentence",
    "html_report",
    "perfetto_trace",
    "perfetto_traces",
    "result_json",
    "spread_json",
    "spread_table",
    "summary_table",
    "write_perfetto",
]
