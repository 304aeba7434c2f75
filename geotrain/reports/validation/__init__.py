"""Predicted against measured step times: table, JSON, chart."""

from geotrain.reports.validation.chart import validation_svg
from geotrain.reports.validation.table import validation_json, validation_table

__all__ = [
    "validation_json",
    "validation_svg",
    "validation_table",
]
