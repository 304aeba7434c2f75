"""Fitting the efficiency rule to measured runs, and saying honestly how good the fit is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geotrain.timeline import Floats
from geotrain.validation.fit import PRIOR, Prior, fit
from geotrain.validation.measured import Measured
from geotrain.validation.predict import ClosedForm, predicted_s
from geotrain.validation.validate import Score, score
from geotrain.workload import Efficiency

_ONE_BY_ONE = 20
"""Up to that many rows, each is held out alone; more are held out in _FOLDS groups."""
_FOLDS = 10
_ANCHORS = 3
_CLOSE = 0.005


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A rule fitted to rows."""

    efficiency: Efficiency
    predicted_s: list[float]
    """Of each row, by the fitted rule."""
    before: Score
    """Of the rule that the fit started from."""
    after: Score
    cross_validated: Score | None
    """Each row predicted by a rule fitted without it; None with a single row."""


def calibrate(rows: Sequence[Measured], start: Efficiency, prior: Prior = PRIOR) -> Calibration:
    """Fit with a closed form that agrees with the simulator at the last rule tried, until the two stay together."""
    measured = np.array([row.seconds for row in rows])
    before = simulated = _simulated(rows, start)
    forms = [ClosedForm(row) for row in rows]
    efficiency = start
    for _ in range(_ANCHORS):
        forms = [form.anchored(efficiency, float(s)) for form, s in zip(forms, simulated, strict=True)]
        efficiency = _fitted(forms, measured, start, prior)
        simulated = _simulated(rows, efficiency)
        if np.abs(_closed(forms, efficiency) / simulated - 1).max() < _CLOSE:
            break
    return Calibration(
        efficiency=efficiency,
        predicted_s=simulated.tolist(),
        before=score(before, measured),
        after=score(simulated, measured),
        cross_validated=_cross_validated(rows, forms, measured, start, prior),
    )


def _cross_validated(
    rows: Sequence[Measured], forms: list[ClosedForm], measured: Floats, start: Efficiency, prior: Prior
) -> Score | None:
    if len(rows) < 2:
        return None
    folds = len(rows) if len(rows) <= _ONE_BY_ONE else _FOLDS
    fold_of = np.arange(len(rows)) % folds
    predicted = np.empty(len(rows))
    for fold in range(folds):
        kept = fold_of != fold
        rule = _fitted([form for form, keep in zip(forms, kept, strict=True) if keep], measured[kept], start, prior)
        for held_out in np.flatnonzero(~kept).tolist():
            predicted[held_out] = predicted_s(rows[held_out], rule)
    return score(predicted, measured)


def _fitted(forms: list[ClosedForm], measured: Floats, start: Efficiency, prior: Prior) -> Efficiency:
    return fit(lambda rule: _closed(forms, rule), measured, start, prior)


def _simulated(rows: Sequence[Measured], rule: Efficiency) -> Floats:
    return np.array([predicted_s(row, rule) for row in rows])


def _closed(forms: Sequence[ClosedForm], rule: Efficiency) -> Floats:
    return np.array([form.seconds(rule) for form in forms])
