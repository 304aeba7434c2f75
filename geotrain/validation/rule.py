"""The file form of an efficiency rule: what --calibrate writes, and what goes into a job."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field

from geotrain.errors import InputError
from geotrain.files import Document, Number, read_yaml
from geotrain.units import plural
from geotrain.validation.calibrate import Calibration
from geotrain.workload import Efficiency


class _Rule(Document):
    """The one field that matters here."""

    efficiency: Annotated[Number, Field(gt=0, le=1)] | Efficiency


def read_rule(path: Path) -> Efficiency | float:
    """The field `efficiency` of a file that --calibrate wrote, or of a job."""
    content = read_yaml(path)
    if not isinstance(content, Mapping) or "efficiency" not in content:
        raise InputError(f"{path}: efficiency is missing: give a file that --calibrate wrote, or a job that has one")
    return _Rule.parse({"efficiency": content["efficiency"]}, source=path).efficiency


def rule_text(calibration: Calibration, *, source: str, num_rows: int) -> str:
    """YAML to paste into a job file, with a word on how good it is."""
    held_out = calibration.cross_validated
    quality = f"mean error {calibration.before.mean_abs_error:.1%} before, {calibration.after.mean_abs_error:.1%} after"
    if held_out is not None:
        quality += f", {held_out.mean_abs_error:.1%} on rows held out"
    rule = yaml.safe_dump({"efficiency": calibration.efficiency.model_dump()}, sort_keys=False)
    return f"# Fitted to {plural(num_rows, 'row')} of {source}: {quality}.\n# Put it into a job file.\n{rule}"
