"""Predicted against measured, row by row and in all: error in time, and order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geotrain.timeline import Floats
from geotrain.validation.measured import Measured
from geotrain.validation.predict import predicted_s, trivial_s
from geotrain.workload import Efficiency


@dataclass(frozen=True, kw_only=True)
class Score:
    """How far predictions are off, as fractions, and whether they are in the right order."""

    mean_abs_error: float
    median_abs_error: float
    worst_abs_error: float
    rank_correlation: float
    """Spearman's; not a number where there is no order to get right."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One row and what two models say of it."""

    row: Measured
    predicted_s: float
    trivial_s: float

    @property
    def error(self) -> float:
        """Signed: above 0 is too slow."""
        return self.predicted_s / self.row.seconds - 1

    @property
    def trivial_error(self) -> float:
        """Of the trivial model."""
        return self.trivial_s / self.row.seconds - 1


@dataclass(frozen=True, kw_only=True)
class Validation:
    """All rows of a table."""

    rows: list[Compared]
    score: Score
    trivial: Score
    trivial_efficiency: float
    """The one share of peak with which the trivial model fits these rows best."""


def validate(rows: Sequence[Measured], efficiency: Efficiency | float) -> Validation:
    """Every row by that rule, and by the trivial model fitted to these very rows."""
    measured = np.array([row.seconds for row in rows])
    predicted = np.array([predicted_s(row, efficiency) for row in rows])
    at_peak = np.array([trivial_s(row) for row in rows])
    slowdown = float(np.exp(np.log(measured / at_peak).mean()))
    trivial = at_peak * slowdown
    return Validation(
        rows=[
            Compared(row=row, predicted_s=float(p), trivial_s=float(t))
            for row, p, t in zip(rows, predicted, trivial, strict=True)
        ],
        score=score(predicted, measured),
        trivial=score(trivial, measured),
        trivial_efficiency=1 / slowdown,
    )


def score(predicted: Floats, measured: Floats) -> Score:
    """The figures of one model."""
    off = np.abs(predicted / measured - 1)
    return Score(
        mean_abs_error=float(off.mean()),
        median_abs_error=float(np.median(off)),
        worst_abs_error=float(off.max()),
        rank_correlation=rank_correlation(predicted, measured),
    )


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's: the correlation of ranks; equal values share the mean of their ranks."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    spread = ranks_a.std() * ranks_b.std()
    if spread == 0:
        return float("nan")
    return float(((ranks_a - ranks_a.mean()) * (ranks_b - ranks_b.mean())).mean() / spread)


def _ranks(values: Floats) -> NDArray[np.float64]:
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    return np.asarray((last - (size - 1) / 2)[group], dtype=np.float64)
