import math

import pytest

from geotrain.cluster import GPUS
from geotrain.prefill.formula import formula_time
from geotrain.prefill.measurements import published
from geotrain.workload import MODELS


def test_formulas_are_as_far_off_published_times_as_their_margin_says():
    logs = []
    for row in published():
        time = formula_time(MODELS[row.model], GPUS[row.gpu], row.tensor_parallel)
        logs.append(math.log(row.seconds / time.seconds(*row.point)))
    deviation = math.sqrt(sum(log**2 for log in logs) / len(logs))
    assert deviation == pytest.approx(0.27, abs=0.01)
    margin = formula_time(MODELS["llama-3.1-8b"], GPUS["h200"], 1).factor
    assert margin(0.5) == pytest.approx(1)
    assert math.log(margin(0.95)) == pytest.approx(1.645 * 0.27, rel=0.01)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", ["gpt-a", "llama-2-70b", "llama-3.1-8b"])
def test_every_gpu_has_a_time_that_more_gpus_shorten(model: str, gpu: str):
    one, eight = (formula_time(MODELS[model], GPUS[gpu], width) for width in (1, 8))
    for time in (one, eight):
        assert min(time.fixed_s, time.per_cached_s, time.per_token_s, time.per_pair_s) > 0
    assert eight.seconds(8192, 8192) < one.seconds(8192, 8192)
