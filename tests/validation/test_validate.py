import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.validation import published_rows, validate
from geotrain.validation.predict import ClosedForm, predicted_s, trivial_s
from geotrain.validation.validate import rank_correlation, score
from geotrain.workload import Efficiency
from tests.validation.rows import make_row


@pytest.fixture(scope="module")
def published():
    return validate(published_rows(), Efficiency())


def test_the_published_step_times_are_met(published):
    assert published.score.mean_abs_error < 0.05
    assert published.score.worst_abs_error < 0.10
    assert published.score.rank_correlation > 0.98


@pytest.mark.parametrize("family", ["Megatron", "Korthikanti"])
def test_each_paper_is_met_by_the_same_rule(published, family: str):
    errors = [compared.error for compared in published.rows if compared.row.name.startswith(family)]
    assert np.abs(errors).mean() < 0.06


def test_recompute_costs_what_was_published(published):
    """Full recompute over selective: 1.29 to 1.32 times as long."""
    by_name = {compared.row.name: compared for compared in published.rows}
    for size in ("22B", "175B", "530B", "1T"):
        full, selective = by_name[f"Korthikanti {size} full"], by_name[f"Korthikanti {size} selective"]
        measured = full.row.seconds / selective.row.seconds
        assert full.predicted_s / selective.predicted_s == pytest.approx(measured, rel=0.06)


def test_the_trivial_model_is_clearly_worse_although_fitted_to_these_rows(published):
    assert published.trivial.mean_abs_error > 3 * published.score.mean_abs_error
    assert published.trivial.rank_correlation < published.score.rank_correlation
    assert published.trivial_efficiency == pytest.approx(0.525, abs=0.01)


def test_the_trivial_model_is_flops_and_bubble():
    """96 B s l h^2 (1 + s/6h + V/16lh) over eight GPUs, times 1 + (2 - 1) / 16."""
    flops = 96 * 64 * 2048 * 24 * 2048**2 * (1 + 1 / 6 + 50000 / (16 * 24 * 2048))
    assert trivial_s(make_row()) == pytest.approx(flops / (8 * 312e12) * (1 + 1 / 16), rel=1e-12)


def test_errors_are_signed_and_scored_without_sign():
    assert score(np.array([1.1, 1.9, 4.0]), np.array([1.0, 2.0, 4.0])).__dict__ == pytest.approx(
        {"mean_abs_error": 0.05, "median_abs_error": 0.05, "worst_abs_error": 0.1, "rank_correlation": 1.0}
    )
    compared = validate([make_row(seconds=1e-3)], Efficiency()).rows[0]
    assert compared.error == compared.predicted_s / 1e-3 - 1 > 0
    assert compared.trivial_error == pytest.approx(0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param([1, 2, 3, 4], [10, 20, 30, 40], 1.0, id="same-order"),
        pytest.param([1, 2, 3, 4], [4, 3, 2, 1], -1.0, id="reverse"),
        pytest.param([1, 2, 2, 3], [1, 2, 3, 4], 4.5 / math.sqrt(4.5 * 5), id="ties-share-their-rank"),
        pytest.param([1, 2, 3], [5, 5, 5], math.nan, id="no-order"),
        pytest.param([1], [5], math.nan, id="one-row"),
    ],
)
def test_rank_correlation_is_spearmans(a: list[float], b: list[float], expected: float):
    assert rank_correlation(np.array(a, float), np.array(b, float)) == pytest.approx(expected, nan_ok=True)


def test_the_closed_form_is_near_the_simulator_and_meets_it_where_anchored():
    other = Efficiency(matmul=0.7, memory=0.5, nvlink=0.4, launch_s=2e-3)
    for row in published_rows():
        simulated = predicted_s(row, other)
        form = ClosedForm(row)
        assert form.seconds(other) == pytest.approx(simulated, rel=0.02)
        assert form.anchored(other, simulated).seconds(other) == pytest.approx(simulated, rel=1e-12)


RUNS: dict[str, st.SearchStrategy[Any]] = {
    "layers": st.integers(8, 24),
    "hidden": st.sampled_from([256, 1024, 4096, 16384]),
    "heads": st.sampled_from([8, 16]),
    "ffn": st.sampled_from([None, 700, 11008]),
    "sequence": st.sampled_from([512, 2048, 8192]),
    "tensor_parallel": st.sampled_from([1, 2, 8]),
    "pipeline_parallel": st.integers(1, 8),
    "data_parallel": st.sampled_from([1, 3, 64]),
    "microbatch": st.integers(1, 8),
    "gpu": st.sampled_from(["v100", "a100-80gb", "h100", "b200"]),
    "precision": st.just("fp16"),
    "recompute": st.sampled_from(["full", "selective", "none"]),
    "interleave": st.integers(1, 4),
    "gpus_per_node": st.sampled_from([4, 8]),
    "attention": st.sampled_from(["fused", "unfused"]),
}


@settings(max_examples=40)
@given(cells=st.fixed_dictionaries(RUNS), rounds=st.integers(1, 12))
def test_any_run_takes_longer_than_at_peak_and_more_batch_takes_longer(cells: dict[str, Any], rounds: int):
    each = cells["microbatch"] * cells["data_parallel"]
    small, large = (make_row(**cells, global_batch=each * n) for n in (rounds, rounds + 1))
    at_peak = 3 / 4 * trivial_s(small) / (1 + (small.pipeline_parallel - 1) / small.num_microbatches)
    assert at_peak < predicted_s(small, Efficiency()) < predicted_s(large, Efficiency())
