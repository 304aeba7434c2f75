"""Fitting the form of PrefillTime to measured times, and saying honestly how good the fit is. numpy only.

Least squares on the relative error, with no coefficient below 0, over the median of each point; so a hiccup among
repeated measurements moves nothing. What the points cannot tell apart is given to the term that is believed first.
The error is that of points held out: each is predicted by a fit without it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist

import numpy as np

from geotrain.prefill.predictor import Point, PrefillTime, Spread
from geotrain.timeline import Floats

TERMS = ("per_token_s", "fixed_s", "per_pair_s", "per_cached_s")
"""In the order in which they are believed."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_UNTESTED = 0.27
"""Deviation, as a logarithm, of a prediction that no point held out has tested: that of the formulas."""
_MOST = math.log(4)
"""Largest deviation, as a logarithm, that is believed without having been seen: few points, of which one was disturbed,
would else say that a prompt may take for ever."""
_APART = 1e-3
"""A term counts if it changes the direction that the terms before it span by so much."""
_SHORTEST_S = 1e-12


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The form fitted to rows."""

    time: PrefillTime
    unknown: tuple[str, ...]
    """Coefficients that the rows cannot tell, taken as 0."""
    measured_s: dict[Point, float]
    """The median of each point."""
    held_out_s: dict[Point, float]
    """For each point the time predicted by a fit without it; empty with a single point."""

    @property
    def errors(self) -> Floats:
        """Of the points held out, as shares of the measured times."""
        return np.array([abs(time_s / self.measured_s[point] - 1) for point, time_s in self.held_out_s.items()])


def fit(points: Sequence[Point], seconds: Sequence[float]) -> Fit:
    """The form that fits best; one row or more."""
    rows = defaultdict[Point, list[float]](list)
    for point, time_s in zip(points, seconds, strict=True):
        rows[point].append(time_s)
    medians = {point: float(np.median(times_s)) for point, times_s in rows.items()}
    time, known = solve(medians)
    held_out = _held_out(medians) if len(medians) > 1 else {}
    if held_out:
        logs = np.log(np.array(seconds) / [held_out[point] for point in points])
        freedom = len(medians) - len(known)
        spread = _spread(logs, freedom) if freedom > 0 else _wider(_spread(logs, 1), untested())
        seen = np.log(np.array(seconds) / [max(_SHORTEST_S, time.seconds(*point)) for point in points])
        spread = _within(spread, math.exp(max(_MOST, float(np.abs(seen).max()))))
    else:
        spread = untested()
    unknown = tuple(term for term in TERMS if term not in known)
    return Fit(time=replace(time, spread=spread), unknown=unknown, measured_s=medians, held_out_s=held_out)


def _held_out(medians: dict[Point, float]) -> dict[Point, float]:
    def without(point: Point) -> PrefillTime:
        return solve({other: time_s for other, time_s in medians.items() if other != point})[0]

    return {point: max(_SHORTEST_S, without(point).seconds(*point)) for point in medians}


def solve(medians: dict[Point, float]) -> tuple[PrefillTime, list[str]]:
    """The best coefficients and the names of those that the points can tell."""
    new, cached = np.array(list(medians), dtype=np.float64).T
    columns = np.stack([new, np.ones_like(new), 2 * cached * new + new**2, cached], axis=1)
    columns /= np.array(list(medians.values()))[:, None]
    sizes = np.linalg.norm(columns, axis=0)
    columns /= np.where(sizes > 0, sizes, 1.0)
    known = _told_apart(columns)
    found = _non_negative(columns[:, known]) / sizes[known]
    names = [TERMS[index] for index in known]
    return PrefillTime(**dict(zip(names, found.tolist(), strict=True))), names


def _told_apart(columns: Floats) -> list[int]:
    known: list[int] = []
    for index in range(columns.shape[1]):
        if np.linalg.matrix_rank(columns[:, [*known, index]], tol=_APART) > len(known):
            known.append(index)
    return known


def _non_negative(columns: Floats) -> Floats:
    """Weights of the columns, none below 0, whose sum is nearest to 1 in every row.

    The best weights are the free solution of the columns they use, so the best free solution without a negative weight
    is the one; there are few columns, so all choices are tried.
    """
    rows, number = columns.shape
    best, least = np.zeros(number), float(rows)
    for used in (list(some) for size in range(1, number + 1) for some in combinations(range(number), size)):
        weights = np.linalg.lstsq(columns[:, used], np.ones(rows), rcond=None)[0]
        off = float(np.sum((columns[:, used] @ weights - 1) ** 2))
        if off < least and weights.min() >= 0:
            best, least = np.zeros(number), off
            best[used] = weights
    return best


def _spread(logs: Floats, freedom: int) -> Spread:
    """Quantiles of real over predicted time: the rows' own, and beyond their reach Student's with their deviation.

    At the median and above no factor is below 1.
    """
    ordered, last = np.sort(logs), len(logs) - 1
    deviation = float(np.sqrt(np.mean(logs**2)))
    found = []
    for quantile in QUANTILES:
        rank = quantile * (last + 2) - 1
        own, beyond = float(np.interp(rank, np.arange(last + 1), ordered)), deviation * _student(quantile, freedom)
        if rank < 0:
            own = min(own, beyond)
        elif rank > last:
            own = max(own, beyond)
        found.append(max(own, 0.0) if quantile >= 0.5 else min(own, 0.0))
    return _factors(np.maximum.accumulate(found).tolist())


def untested() -> Spread:
    """The spread of a prediction that nothing has tested."""
    return _factors([_UNTESTED * NormalDist().inv_cdf(quantile) for quantile in QUANTILES])


def _wider(one: Spread, other: Spread) -> Spread:
    pairs = zip(one, other, strict=True)
    return tuple((at, max(mine, theirs) if at > 0.5 else min(mine, theirs)) for (at, mine), (_, theirs) in pairs)


def _within(spread: Spread, most: float) -> Spread:
    return tuple((at, min(most, max(1 / most, factor))) for at, factor in spread)


def _factors(logs: Sequence[float]) -> Spread:
    return tuple((quantile, math.exp(log)) for quantile, log in zip(QUANTILES, logs, strict=True))


def _student(quantile: float, freedom: int) -> float:
    """Student's quantile from the normal one: the first terms of Fisher and Cornish's expansion."""
    z, n = NormalDist().inv_cdf(quantile), freedom
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
