import pytest

from geotrain.cluster import GPUS
from geotrain.cluster.catalog import find_gpu
from geotrain.errors import InputError


def test_a_gpu_is_found_in_any_case():
    assert find_gpu("A100-80GB") is GPUS["a100-80gb"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param(
            "a100", "is not in the GPU catalog: did you mean 'a100-40gb' or 'a100-80gb'?", id="two-begin-like-it"
        ),
        pytest.param("mi300", "is not in the GPU catalog: did you mean 'mi300x'?", id="one-begins-like-it"),
        pytest.param("h1000", "is not in the GPU catalog: did you mean 'h100'?", id="typo"),
    ],
)
def test_an_unknown_gpu_is_answered_with_the_nearest(name: str, reason: str):
    with pytest.raises(ValueError) as caught:
        find_gpu(name)
    assert str(caught.value) == reason


def test_figures_are_in_si_units():
    gpu = GPUS["a100-80gb"]
    assert (gpu.bf16, gpu.memory_bytes, gpu.memory_bandwidth) == (312e12, 80 * 2**30, 2.039e12)


def test_a_gpu_without_bf16_says_what_it_has():
    with pytest.raises(InputError) as caught:
        GPUS["v100"].peak_flops("bf16")
    assert str(caught.value) == "precision 'bf16' is not supported by the GPU 'v100', which has fp16, fp32"
