import pytest

from geotrain.cost.efficiency import CEILING, HALF_FLOPS, efficiency
from tests.cost.jobs import make_job


def test_the_jobs_own_figure_wins():
    assert efficiency(make_job(efficiency=0.41), 8) == 0.41


def test_half_of_the_ceiling_is_reached_at_the_stated_size():
    model = {"layers": 1, "hidden": 1000, "heads": 10, "vocab": 10}  # 12 million weights per layer
    job = make_job(model, sequence=1, microbatch=6250)
    assert HALF_FLOPS == 2 * 6250 * 12e6
    assert efficiency(job, 1) == pytest.approx(CEILING / 2)


def test_larger_work_per_gpu_is_more_efficient_and_never_beyond_the_ceiling():
    rising = [
        efficiency(make_job("gpt-a"), 8),
        efficiency(make_job("gpt-a"), 1),
        efficiency(make_job("gpt-a", microbatch=4), 1),
        efficiency(make_job("gpt-b", microbatch=4), 1),
        efficiency(make_job("megatron-1t", microbatch=64), 1),
    ]
    assert rising == sorted(set(rising))
    assert rising[-1] < CEILING
