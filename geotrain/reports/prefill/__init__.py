"""Prefill in the bubbles, simulated: table, JSON, page, Perfetto trace; calibrated times."""

from geotrain.reports.prefill.page import prefill_html
from geotrain.reports.prefill.table import prefill_json, prefill_table
from geotrain.reports.prefill.times import calibration_json, calibration_table
from geotrain.reports.prefill.trace import prefill_trace, write_prefill_trace

__all__ = [
    "calibration_json",
    "calibration_table",
    "prefill_html",
    "prefill_json",
    "prefill_table",
    "prefill_trace",
    "write_prefill_trace",
]
