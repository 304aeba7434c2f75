from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml

from geotrain.errors import InputError
from geotrain.validation import Calibration, Measured, calibrate, published_rows, read_rule, rule_text
from geotrain.validation.fit import FIGURES, Prior, fit
from geotrain.validation.predict import predicted_s
from geotrain.workload import Efficiency
from tests.validation.rows import make_row

SLOW = Efficiency(matmul=0.7, memory=0.6, nvlink=0.4, exchange_s=20e-6, launch_s=2e-3)
PHYSICAL = Efficiency(matmul=0.95, memory=0.8, nvlink=0.7, exchange_s=10e-6, launch_s=0.85e-3)
"""What the built-in rule started from: see docs/validation.md."""
KNOWN = Prior(alone=(0.03, 0.05, 0.1, 0.5, 0.3), together=0.0)


def runs(rule: Efficiency, noise: float = 0.0) -> list[Measured]:
    """Runs as that rule has them: small and large, alone and shared, in all a dozen and a half."""
    random = np.random.default_rng(1)
    rows = []
    for hidden, tensor_parallel, microbatch in product((512, 2048, 8192), (1, 2, 8), (1, 8)):
        cells = {"hidden": hidden, "tensor_parallel": tensor_parallel, "microbatch": microbatch, "recompute": "none"}
        seconds = predicted_s(make_row(**cells), rule) * np.exp(random.normal(0, noise))
        rows.append(make_row(**cells, seconds=seconds))
    return rows


@pytest.fixture(scope="module")
def recovered() -> Calibration:
    return calibrate(runs(SLOW), Efficiency())


def test_runs_made_by_another_rule_give_that_rule_back(recovered: Calibration):
    for name in FIGURES:
        # Exchanges are a small part of these runs, so they say little of their fixed cost; a prior pulls at all.
        within = 0.3 if name == "exchange_s" else 0.07
        assert getattr(recovered.efficiency, name) == pytest.approx(getattr(SLOW, name), rel=within), name


def test_the_fit_says_how_good_it_is(recovered: Calibration):
    assert recovered.before.mean_abs_error > 0.2
    assert recovered.after.mean_abs_error < 0.01
    assert recovered.cross_validated is not None
    assert recovered.cross_validated.mean_abs_error < 0.02
    rows = runs(SLOW)
    assert recovered.predicted_s == [predicted_s(row, recovered.efficiency) for row in rows]


def test_noise_and_a_run_gone_wrong_do_not_lead_astray():
    rows = runs(SLOW, noise=0.03)
    rows[3] = make_row(hidden=512, tensor_parallel=2, microbatch=8, recompute="none", seconds=5 * rows[3].seconds)
    fitted = calibrate(rows, Efficiency()).efficiency
    assert fitted.matmul == pytest.approx(SLOW.matmul, rel=0.1)
    assert fitted.launch_s == pytest.approx(SLOW.launch_s, rel=0.2)


def test_one_row_moves_the_rule_as_a_whole_and_not_absurdly():
    row = make_row(seconds=1.6 * predicted_s(make_row(), Efficiency()))
    calibration = calibrate([row], Efficiency())
    assert calibration.after.mean_abs_error < 0.05 < calibration.before.mean_abs_error
    assert calibration.cross_validated is None
    assert 0.5 < calibration.efficiency.matmul < 0.85
    assert 0.4 < calibration.efficiency.memory < 0.75


def test_a_rule_stays_where_it_is_if_rows_agree_with_it():
    calibration = calibrate(runs(Efficiency()), Efficiency())
    for name in FIGURES:
        assert getattr(calibration.efficiency, name) == pytest.approx(getattr(Efficiency(), name), rel=0.01)


def test_no_share_is_fitted_beyond_one():
    fitted = calibrate([make_row(seconds=0.3 * predicted_s(make_row(), Efficiency()))], Efficiency()).efficiency
    assert max(fitted.matmul, fitted.memory, fitted.nvlink) <= 1


def test_same_rows_same_rule():
    rows = runs(SLOW, noise=0.05)[:5]
    assert calibrate(rows, Efficiency()) == calibrate(rows, Efficiency())


def test_the_built_in_rule_is_the_published_rows_fit_from_physical_values():
    """And each published row is met as well by a rule that has not seen it."""
    calibration = calibrate(published_rows(), PHYSICAL, KNOWN)
    for name in FIGURES:
        assert getattr(Efficiency(), name) == pytest.approx(getattr(calibration.efficiency, name), rel=0.01), name
    assert calibration.cross_validated is not None
    assert calibration.cross_validated.mean_abs_error < 0.05
    assert calibration.cross_validated.rank_correlation > 0.98


def test_least_squares_finds_a_share_between_its_prior_and_the_rows():
    """Two rows that want half the speed in everything, pulled by a prior that does not."""
    measured = np.array([2.0, 4.0])
    at_start = np.array([1.0, 2.0])
    fitted = fit(lambda rule: at_start * PHYSICAL.matmul / rule.matmul, measured, PHYSICAL, KNOWN)
    assert PHYSICAL.matmul / 2 < fitted.matmul < PHYSICAL.matmul
    assert fitted.memory == PHYSICAL.memory


def test_the_rule_goes_into_a_file_and_back(tmp_path: Path, recovered: Calibration):
    text = rule_text(recovered, source="runs.csv", num_rows=18)
    assert text.startswith("# Fitted to 18 rows of runs.csv: mean error ")
    path = tmp_path / "rule.yaml"
    path.write_text(text)
    assert read_rule(path) == recovered.efficiency
    assert set(yaml.safe_load(text)["efficiency"]) == set(FIGURES)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("model: gpt-a\nefficiency: 0.4\n", 0.4, id="a-job"),
        pytest.param("efficiency: {matmul: 0.5}\n", Efficiency(matmul=0.5), id="part-of-a-rule"),
    ],
)
def test_rules_are_read_from_jobs_too(tmp_path: Path, content: str, expected: Efficiency | float):
    path = tmp_path / "rule.yaml"
    path.write_text(content)
    assert read_rule(path) == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param("model: gpt-a\n", "efficiency is missing", id="missing"),
        pytest.param("efficiency: {matmul: 2}\n", "efficiency.matmul is 2 and must be at most 1", id="too-good"),
    ],
)
def test_a_file_without_a_rule_is_refused(tmp_path: Path, content: str, sentence: str):
    path = tmp_path / "rule.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=sentence):
        read_rule(path)
