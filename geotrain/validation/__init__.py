"""Prediction against measurement: published and measured step times, and fitting the efficiency rule to them."""

from geotrain.validation.calibrate import Calibration, calibrate
from geotrain.validation.measured import Measured
from geotrain.validation.rule import read_rule, rule_text
from geotrain.validation.table import published_rows, read_rows
from geotrain.validation.validate import Compared, Score, Validation, validate

__all__ = [
    "Calibration",
    "Compared",
    "Measured",
    "Score",
    "Validation",
    "calibrate",
    "published_rows",
    "read_rows",
    "read_rule",
    "rule_text",
    "validate",
]
