import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.prefill.fitting import QUANTILES, TERMS, fit
from geotrain.prefill.predictor import PrefillTime

GRID = [(new, cached) for cached in (0, 1024, 4096) for new in (64, 256, 1024, 4096, 16384)]
ALONE = [(new, 0) for new in (128, 512, 2048, 8192)]

usual = {
    "fixed_s": st.floats(1e-3, 0.05),
    "per_cached_s": st.floats(1e-7, 1e-6),
    "per_token_s": st.floats(1e-5, 1e-4),
    "per_pair_s": st.floats(3e-10, 3e-9),
}
some = st.fixed_dictionaries({term: st.just(0.0) | values for term, values in usual.items()}).filter(
    lambda found: found["per_token_s"] > 0
)
rows = st.lists(
    st.tuples(st.tuples(st.integers(1, 50_000), st.integers(0, 50_000)), st.floats(1e-3, 1e3)), min_size=1, max_size=12
)


@settings(max_examples=30, deadline=None)
@given(truth=some)
def test_exact_times_give_back_their_coefficients(truth: dict[str, Any]):
    time = PrefillTime(**truth)
    found = fit(GRID, [time.seconds(*point) for point in GRID])
    assert found.unknown == ()
    for term, value in truth.items():
        assert getattr(found.time, term) == pytest.approx(value, rel=1e-4, abs=1e-13), term
    assert found.errors.max() < 1e-6
    assert [factor for _, factor in found.time.spread] == pytest.approx([1.0] * len(QUANTILES))


@settings(deadline=None)
@given(rows=rows)
def test_no_rows_whatsoever_give_a_negative_coefficient_or_a_margin_that_falls(rows):
    found = fit([point for point, _ in rows], [time_s for _, time_s in rows])
    values = [getattr(found.time, term) for term in TERMS]
    assert min(values) >= 0 and max(values) > 0 and all(map(math.isfinite, values))
    assert all(getattr(found.time, term) == 0 for term in found.unknown)
    quantiles, factors = zip(*found.time.spread, strict=True)
    assert quantiles == QUANTILES
    assert list(factors) == sorted(factors) and factors[0] > 0 and math.isfinite(factors[-1])
    assert all(found.time.factor(quantile) >= 1 for quantile in (0.5, 0.6, 0.8, 0.95, 1.0))
    assert len(found.held_out_s) == (0 if len(found.measured_s) == 1 else len(found.measured_s))


def test_no_other_coefficients_fit_better():
    generator = np.random.default_rng(1)
    times_s = [0.01 + 5e-5 * new * generator.lognormal(0, 0.2) for new, _ in GRID]

    def off(time: PrefillTime) -> float:
        return sum((time.seconds(*point) / time_s - 1) ** 2 for point, time_s in zip(GRID, times_s, strict=True))

    best = fit(GRID, times_s).time
    for _ in range(300):
        moved = {term: getattr(best, term) * generator.lognormal(0, 0.1) + 1e-12 for term in TERMS}
        assert off(best) <= off(PrefillTime(**moved))


@pytest.mark.parametrize(
    ("points", "unknown"),
    [
        pytest.param(ALONE, ("per_cached_s",), id="nothing-cached"),
        pytest.param([(new, 100) for new, _ in ALONE], ("per_cached_s",), id="always-as-much-cached"),
        pytest.param(ALONE[:2], ("per_pair_s", "per_cached_s"), id="two-lengths"),
        pytest.param(ALONE[:1], ("fixed_s", "per_pair_s", "per_cached_s"), id="one-length"),
    ],
)
def test_what_the_points_cannot_tell_is_named_and_0(points: list[tuple[int, int]], unknown: tuple[str, ...]):
    time = PrefillTime(fixed_s=0.01, per_token_s=5e-5, per_pair_s=1e-9)
    found = fit(points, [time.seconds(*point) for point in points])
    assert found.unknown == unknown
    for point in points:
        assert found.time.seconds(*point) == pytest.approx(time.seconds(*point))


def test_a_hiccup_among_repeats_moves_the_margin_and_not_the_fit():
    time = PrefillTime(fixed_s=0.01, per_token_s=5e-5, per_pair_s=1e-9)
    points = GRID * 9
    calm = [time.seconds(*point) * (1 + 0.01 * (index % 3 - 1)) for index, point in enumerate(points)]
    hiccup = [time_s * (10 if index < 3 else 1) for index, time_s in enumerate(calm)]
    before, after = fit(points, calm), fit(points, hiccup)
    assert after.time.per_token_s == pytest.approx(before.time.per_token_s, rel=0.02)
    assert before.time.factor(0.99) < 1.05 < 5 < after.time.factor(0.99)
    assert after.time.factor(0.9) < 1.05


def test_the_margin_holds_for_times_that_the_fit_has_not_seen():
    generator = np.random.default_rng(2)
    time = PrefillTime(fixed_s=0.01, per_token_s=5e-5, per_pair_s=1e-9)

    def noisy(points):
        return [time.seconds(*point) * generator.lognormal(0, 0.05) for point in points]

    below = {0.75: 0, 0.95: 0}
    for _ in range(40):
        found = fit(ALONE * 2, noisy(ALONE * 2)).time
        for point, time_s in zip(GRID[:5], noisy(GRID[:5]), strict=True):
            for quantile in below:
                below[quantile] += time_s <= found.seconds(*point) * found.factor(quantile)
    assert below[0.75] >= 0.7 * 200
    assert below[0.95] >= 0.92 * 200


def test_few_rows_are_not_trusted_even_where_they_fit():
    one, two = (fit(ALONE[:number], [0.1 * new for new, _ in ALONE[:number]]).time for number in (1, 2))
    assert one.factor(0.95) > 1.4
    assert two.factor(0.95) > 1.4


def test_one_disturbed_time_among_few_does_not_make_prompts_take_for_ever():
    calm = [0.001, 0.002, 0.004]
    for disturbed in range(3):
        times = [time_s * (30 if index == disturbed else 1) for index, time_s in enumerate(calm)]
        assert fit([(1, 0), (32, 0), (64, 0)], times).time.factor(0.99) <= 40
