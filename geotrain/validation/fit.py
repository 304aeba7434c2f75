"""Least squares on the logarithm of time, with a pull towards what is known already. numpy only, deterministic.

Levenberg-Marquardt in the logarithms of the rule's figures. Each figure is pulled to its start as if by a measurement
of its own, so a few rows move the rule a little and many rows decide it; what a few rows can tell is that a machine is
slower in everything, and that is pulled least. Rows that fit nothing else count less (Huber).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geotrain.timeline import Floats
from geotrain.workload import Efficiency

FIGURES = ("matmul", "memory", "nvlink", "exchange_s", "launch_s")
_SLOWER = np.array([-1.0, -1.0, -1.0, 1.0, 1.0])


@dataclass(frozen=True, kw_only=True)
class Prior:
    """How far from its start a rule is expected, as logarithms: 0.1 is about 10%."""

    alone: tuple[float, ...]
    """Each figure by itself."""
    together: float
    """All figures at once: shares down and times up, or the reverse."""

    def pull(self) -> Floats:
        """The inverse of the covariance."""
        covariance = np.diag(np.square(self.alone)) + self.together**2 * np.outer(_SLOWER, _SLOWER)
        return np.asarray(np.linalg.inv(covariance), dtype=np.float64)


PRIOR = Prior(alone=(0.1, 0.15, 0.25, 0.7, 0.5), together=0.4)
NOISE = 0.05
"""What a row is expected to be off when the rule is right."""
_LEAST, _MOST = np.log([0.02, 0.02, 0.02, 1e-8, 1e-7]), np.log([1.0, 1.0, 1.0, 1e-2, 1.0])
_PATIENCE = 2.0
"""Multiples of NOISE beyond which a row counts less."""
_STEP, _ITERATIONS, _DIGITS = 1e-4, 40, 4

Predict = Callable[[Efficiency], Floats]
"""Predicted seconds of all rows by a rule."""


def fit(predict: Predict, measured: Floats, start: Efficiency, prior: Prior) -> Efficiency:
    """The rule that fits best, its figures rounded as they are written."""
    center = np.clip(_logs(start), _LEAST, _MOST)
    pull = prior.pull()

    def off(logs: Floats) -> Floats:
        return np.asarray(np.log(predict(_rule(logs)) / measured) / NOISE)

    def cost(residual: Floats, logs: Floats) -> float:
        far = np.abs(residual)
        rows = np.where(far <= _PATIENCE, far**2, 2 * _PATIENCE * far - _PATIENCE**2)
        return float(rows.sum() + (logs - center) @ pull @ (logs - center))

    logs, damping = center, 1e-3
    residual = off(logs)
    for _ in range(_ITERATIONS):
        slope = np.stack([(off(logs + _STEP * unit) - residual) / _STEP for unit in np.eye(len(logs))], axis=1)
        weight = np.minimum(1.0, _PATIENCE / np.maximum(np.abs(residual), 1e-12))
        normal = slope.T @ (weight[:, None] * slope) + pull
        downhill = slope.T @ (weight * residual) + pull @ (logs - center)
        moved = False
        while damping < 1e6 and not moved:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
            tried = np.clip(logs - step, _LEAST, _MOST)
            tried_residual = off(tried)
            moved = cost(tried_residual, tried) < cost(residual, logs) - 1e-9
            damping *= 0.3 if moved else 10
        if not moved:
            break
        logs, residual = tried, tried_residual
    return _rule(logs, digits=_DIGITS)


def _logs(rule: Efficiency) -> Floats:
    return np.log([max(getattr(rule, name), 1e-12) for name in FIGURES])


def _rule(logs: Floats, *, digits: int = 17) -> Efficiency:
    # A slope is taken a little beyond a share of 1.
    values = np.exp(np.minimum(logs, _MOST))
    return Efficiency(**{name: float(f"{value:.{digits}g}") for name, value in zip(FIGURES, values, strict=True)})
