"""Prefill times fitted to measurements, their file, and which of them a model on a slot has."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import Field, StringConstraints, field_validator, model_validator

from geotrain.cluster import GPUS, Gpu
from geotrain.files import Document, Number, Whole, write_text
from geotrain.prefill.fitting import Fit, fit
from geotrain.prefill.formula import formula_time
from geotrain.prefill.measurements import Measurement, Setting, published
from geotrain.prefill.predictor import PrefillTime
from geotrain.units import Seconds
from geotrain.workload import MODELS, Model

Name = Annotated[str, StringConstraints(to_lower=True, min_length=1)]
_DIGITS = 6


class Error(Document):
    """Of points that were held out: each predicted by a fit without it, as a share of the measured time."""

    mean: Number = Field(ge=0)
    worst: Number = Field(ge=0)


class Calibration(Document):
    """How long prefill of a model takes on a slot: c + g L + b x + a (2 L x + x^2) for x tokens after L cached."""

    model: Name
    gpu: Name
    tensor_parallel: Whole = Field(ge=1)
    fixed_s: Seconds = 0.0
    """c."""
    per_cached_s: Seconds = 0.0
    """g."""
    per_token_s: Seconds = 0.0
    """b."""
    per_pair_s: Seconds = 0.0
    """a."""
    spread: tuple[tuple[Number, Number], ...] = Field(((0.5, 1.0),), min_length=1)
    """Quantiles, rising, and the real time there as a multiple of the predicted one."""
    unknown: tuple[str, ...] = ()
    """Coefficients that the rows could not tell, taken as 0."""
    rows: Whole = Field(0, ge=0)
    error: Error | None = None
    source: str = ""

    @field_validator("spread")
    @classmethod
    def _rises(cls, spread: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        quantiles, factors = zip(*spread, strict=True)
        if not (quantiles[0] >= 0 and quantiles[-1] <= 1 and factors[0] > 0):
            raise ValueError("must have quantiles from 0 to 1 and factors above 0")
        if list(quantiles) != sorted(set(quantiles)) or list(factors) != sorted(factors):
            raise ValueError("must have rising quantiles with factors that do not fall")
        return spread

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.fixed_s + self.per_token_s + self.per_pair_s == 0:
            raise ValueError("fixed_s, per_token_s and per_pair_s are 0 and one of them must be above 0")
        return self

    @property
    def setting(self) -> Setting:
        """What runs on what."""
        return self.model, self.gpu, self.tensor_parallel

    @property
    def time(self) -> PrefillTime:
        """To predict with."""
        return PrefillTime(
            fixed_s=self.fixed_s,
            per_cached_s=self.per_cached_s,
            per_token_s=self.per_token_s,
            per_pair_s=self.per_pair_s,
            spread=self.spread,
        )


class Calibrations(Document):
    """The file that `geotrain prefill calibrate --write` writes."""

    calibrations: tuple[Calibration, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _once_each(self) -> Self:
        settings = [calibration.setting for calibration in self.calibrations]
        twice = next((setting for setting in settings if settings.count(setting) > 1), None)
        if twice:
            raise ValueError("calibrations has {} on {}, tensor_parallel {}, twice".format(*twice))
        return self

    def find(self, setting: Setting) -> Calibration | None:
        """The calibration for that."""
        return next((found for found in self.calibrations if found.setting == setting), None)

    def save(self, path: Path) -> None:
        """Write the file."""
        write_text(path, yaml.safe_dump(self.dump(), sort_keys=False, default_flow_style=None, width=120))


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A calibration and the fit it comes from."""

    calibration: Calibration
    fit: Fit


def calibrate(rows: Iterable[Measurement]) -> list[Calibrated]:
    """A fit for each model, GPU and tensor_parallel, in the order in which they come."""
    groups = defaultdict[Setting, list[Measurement]](list)
    for row in rows:
        groups[row.setting].append(row)
    return [_calibrated(group) for group in groups.values()]


def prefill_time(
    model: Model, gpu: Gpu, tensor_parallel: int, calibrations: Calibrations | None = None
) -> tuple[PrefillTime, str]:
    """The best that is known of it and where that comes from: the calibration given, published times, formulas.

    Published times hold for the GPU of the catalog, with whatever memory.
    """
    setting = model.name.lower(), gpu.name.lower(), tensor_parallel
    given = calibrations and calibrations.find(setting)
    if given:
        return given.time, f"calibration: {given.source or 'no source given'}"
    in_catalog = GPUS.get(gpu.name)
    same = in_catalog is not None and in_catalog.model_copy(update={"memory_bytes": gpu.memory_bytes}) == gpu
    known = _published() if same else {}
    for name, other in MODELS.items():
        if (name, *setting[1:]) in known and _shape(other) == _shape(model):
            found = known[name, *setting[1:]]
            return found.time, f"published times: {found.source}"
    return formula_time(model, gpu, tensor_parallel), "formulas: nobody has measured it"


def _calibrated(rows: list[Measurement]) -> Calibrated:
    fitted = fit([row.point for row in rows], [row.seconds for row in rows])
    model, gpu, tensor_parallel = rows[0].setting
    time, errors = fitted.time, fitted.errors
    calibration = Calibration(
        model=model,
        gpu=gpu,
        tensor_parallel=tensor_parallel,
        fixed_s=_rounded(time.fixed_s),
        per_cached_s=_rounded(time.per_cached_s),
        per_token_s=_rounded(time.per_token_s),
        per_pair_s=_rounded(time.per_pair_s),
        spread=tuple((quantile, _rounded(factor)) for quantile, factor in time.spread),
        unknown=fitted.unknown,
        rows=len(rows),
        error=Error(mean=_rounded(errors.mean()), worst=_rounded(errors.max())) if len(errors) else None,
        source=", ".join(dict.fromkeys(row.source for row in rows)),
    )
    return Calibrated(calibration=calibration, fit=fitted)


def _rounded(value: float) -> float:
    """As it is written into a file."""
    return float(f"{value:.{_DIGITS}g}")


@cache
def _published() -> dict[Setting, Calibration]:
    return {found.calibration.setting: found.calibration for found in calibrate(published())}


def _shape(model: Model) -> Model:
    """What the time depends on."""
    return model.model_copy(update={"name": "", "sequence": None})
