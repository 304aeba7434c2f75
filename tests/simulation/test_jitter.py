"""The same lists under random times."""

import re

import numpy as np
import pytest

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.simulation import DISTRIBUTIONS, Jitter, run, spread
from geotrain.simulation.jitter import Distribution, _factors
from tests.simulation.plans import make_plan


def plan(schedule: str = "auto", cells: int = 1) -> Plan:
    return make_plan(
        forward=[1, 1, 1, 1], backward=[2, 2, 2, 2], occupancy=[None, 1.0, None], latency=[0, 4, 0],
        microbatches=8, pipelines=2, sharing="temporal", schedule=schedule, cells=cells,
    )  # fmt: skip


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_factors_average_one_and_have_the_spread_asked_for(distribution: Distribution) -> None:
    factors = _factors(np.random.default_rng(0), distribution, 0.05, (400_000,))
    assert factors.mean() == pytest.approx(1, abs=1e-3)
    assert factors.std() == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("schedule", ["1f1b", "atlas", "auto"])
def test_quantiles_are_in_order_and_repeat_with_the_seed(distribution: Distribution, schedule: str) -> None:
    played, result = run(plan(schedule))
    jitter = Jitter(compute=0.1, wan=0.2, distribution=distribution, samples=40)
    varied = spread(played, jitter)
    assert varied == spread(played, jitter)
    assert varied.p50_s <= varied.p95_s <= varied.p99_s
    assert varied.steady_s == result.step_time_s
    assert varied != spread(played, Jitter(compute=0.1, wan=0.2, distribution=distribution, samples=40, seed=1))


def test_no_variation_is_the_step_itself() -> None:
    played, result = run(plan())
    still = spread(played, Jitter(compute=0, wan=0, samples=10))
    assert still.p50_s == still.p99_s == result.step_time_s


def test_more_cells_wait_for_a_slower_slowest() -> None:
    jitter = Jitter(compute=0.1, wan=0.1, samples=60)
    few, many = (spread(run(plan("1f1b", cells=cells))[0], jitter) for cells in (1, 8))
    assert many.p50_s > few.p50_s


def test_robust_has_the_lower_p95() -> None:
    jitter = Jitter(compute=0.2, wan=0.5, distribution="heavy", samples=60)
    careless, careful = run(plan())[0], run(plan(), robust=jitter)[0]
    assert spread(careful, jitter).p95_s <= spread(careless, jitter).p95_s


def test_a_step_may_vary_as_a_whole() -> None:
    played, result = run(plan("1f1b", cells=3))
    varied = spread(played, Jitter(compute=0, wan=0, step=0.02))
    assert varied.p50_s == pytest.approx(result.step_time_s, rel=0.01)
    assert varied.p95_s == pytest.approx(result.step_time_s * 1.033, rel=0.01)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("5%", Jitter(compute=0.05, wan=0.05), id="compute and WAN alike"),
        pytest.param("0.05", Jitter(compute=0.05, wan=0.05), id="a plain share"),
        pytest.param("step=2%, kind=normal", Jitter(compute=0, wan=0, step=0.02, distribution="normal"), id="the step"),
        pytest.param("wan=1%,samples=10,seed=3", Jitter(compute=0, wan=0.01, samples=10, seed=3), id="numbers"),
    ],
)
def test_jitter_reads_like_a_list(text, meant):
    assert Jitter.parse(text) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("compte=2%", "--jitter has the unknown part 'compte'; did you mean 'compute'", id="unknown"),
        pytest.param("kind=loud", "--jitter kind is 'loud' and must be one of normal", id="kind"),
        pytest.param("lots", "--jitter compute is 'lots' and must be a share", id="no share"),
        pytest.param("wan=120%", "--jitter wan is '120%' and must be between 0 and 100%", id="too much"),
        pytest.param("5%%", "--jitter compute is '5%%' and must be a share", id="two signs"),
        pytest.param("compute=5%,compute=6%", "--jitter has 'compute' twice", id="twice"),
        pytest.param("5%,samples=20", "--jitter has '5%', which has no name", id="no name"),
        pytest.param("compute=5%,samples=", "--jitter samples is '' and must be a whole number", id="nothing"),
        pytest.param("samples=9", "--jitter samples is '9' and must be a whole number from 10", id="too few"),
    ],
)
def test_what_is_no_jitter_is_refused_in_a_sentence(text, said):
    with pytest.raises(InputError, match=re.escape(said)):
        Jitter.parse(text)
