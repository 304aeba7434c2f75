from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.cluster import GPUS
from geotrain.cost import stage_costs
from geotrain.cost.efficiency import Rates, rule_of
from geotrain.cost.flops import stage_flops
from geotrain.cost.work import Share, Work
from geotrain.errors import InputError
from geotrain.workload import MODELS, Efficiency, Job
from tests.cost.jobs import make_job, make_plan

A100 = GPUS["a100-80gb"]
RULE = Efficiency(matmul=0.5, memory=0.5, nvlink=0.5, exchange_s=1e-3, launch_s=0)


def achieved(model: str | dict[str, Any], tensor_parallel: int = 1, gpu: str = "a100-80gb", **choices: Any) -> float:
    """Share of peak over forward and backward of one layer."""
    job = make_job(model, **choices)
    share = Share(job, tensor_parallel, True)
    times = Rates.of(GPUS[gpu], job.precision, rule_of(job)).pass_times(share.layer, launched=True)
    flops = 3 * stage_flops(job, 1, is_last=False).forward / tensor_parallel
    return flops / (times.forward_s + times.backward_s) / GPUS[gpu].peak_flops(job.precision)


def test_a_job_has_the_built_in_rule_unless_it_brings_its_own():
    assert rule_of(make_job()) == Efficiency()
    assert rule_of(make_job(efficiency=0.41)) == 0.41
    assert rule_of(make_job(efficiency={"matmul": 0.9, "launch_s": "1 ms"})) == Efficiency(matmul=0.9, launch_s=1e-3)


@pytest.mark.parametrize(
    ("efficiency", "sentence"),
    [
        pytest.param(1.5, "efficiency is 1.5 and must be at most 1", id="above-peak"),
        pytest.param({"memory": 0}, "efficiency.memory is 0 and must be above 0", id="no-memory"),
        pytest.param(
            {"matmull": 0.5}, "efficiency.matmull is not a known field: did you mean 'matmul'?", id="misspelled"
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused(efficiency: object, sentence: str):
    with pytest.raises(InputError) as caught:
        Job.parse({"model": "gpt-a", "microbatches": 1, "efficiency": efficiency}, source=Path("job.yaml"))
    assert sentence in str(caught.value)


def test_a_pass_takes_the_sum_of_its_parts():
    rates = Rates.of(A100, "bf16", RULE)
    assert rates.flops == 312e12 * 0.86 * 0.5
    assert (rates.memory, rates.link) == (2039e9 * 0.5, 300e9 * 0.5)
    work = Work(flops=rates.flops, moved_bytes=2 * rates.memory, exchanged_bytes=3 * rates.link, exchanges=4)
    assert rates.seconds(work) == pytest.approx(1 + 2 + 3 + 4e-3)


def test_a_single_figure_leaves_operations_alone():
    rates = Rates.of(A100, "bf16", 0.5)
    assert rates.seconds(Work(flops=156e12, moved_bytes=1e15, exchanged_bytes=1e15, exchanges=1e6)) == 1.0


def test_without_a_link_exchanges_take_only_their_fixed_cost():
    rates = Rates.of(A100.model_copy(update={"nvlink": None}), "bf16", RULE)
    assert rates.seconds(Work(exchanged_bytes=1e15, exchanges=2)) == 2e-3


def test_the_slower_of_host_and_gpu_sets_the_pace():
    share = Share(make_job("megatron-1.7b"), 1, True)
    rates = Rates.of(A100, "bf16", RULE)
    gpu, host, both = (
        replace(rates, launch_s=launch_s).pass_times(share.layer, launched=True) for launch_s in (0.0, 1.0, 5e-3)
    )
    assert host.forward_s == pytest.approx(1.0, rel=1e-3)
    assert host.backward_s == pytest.approx(2.0, rel=1e-3)
    assert max(gpu.forward_s, 5e-3) < both.forward_s < gpu.forward_s + 5e-3


def test_larger_work_per_gpu_is_more_efficient():
    rising = [
        achieved("megatron-1.7b", 8),
        achieved("megatron-1.7b", 1),
        achieved("megatron-1.7b", 1, microbatch=16),
        achieved("megatron-39b", 1, microbatch=16),
        achieved("megatron-1t", 1, microbatch=64),
    ]
    assert rising == sorted(set(rising))
    assert 0.75 < rising[-1] < 0.86 * 0.98


@pytest.mark.parametrize("gpu", ["v100", "a100-40gb", "a100-80gb", "l40s", "h100", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("model", MODELS)
def test_no_gpu_is_faster_than_its_peak_nor_absurdly_slow(model: str, gpu: str):
    assert 0.05 < achieved(model, 1, gpu, precision="fp16", microbatch=4) < GPUS[gpu].matmul


@pytest.mark.parametrize(
    ("model", "tensor_parallel"), [("llama-2-7b", 1), ("llama-2-13b", 2), ("llama-2-70b", 8), ("llama-3.1-405b", 8)]
)
def test_llamas_reach_what_they_do_on_h100(model: str, tensor_parallel: int):
    """Layers alone; bubbles, head and data-parallel exchange take the rest of the way to 35 to 55%."""
    assert 0.42 < achieved(model, tensor_parallel, "h100", recompute="none") < 0.7


@given(
    hidden=st.integers(1, 200).map(lambda n: 128 * n),
    tokens=st.sampled_from([128, 1024, 8192]),
    microbatch=st.integers(1, 64),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    gpu=st.sampled_from(sorted(GPUS)),
    attention=st.sampled_from(["fused", "unfused"]),
    swiglu=st.booleans(),
)
def test_any_layer_takes_longer_than_at_peak_and_more_work_takes_longer(
    hidden: int, tokens: int, microbatch: int, tensor_parallel: int, gpu: str, attention: str, swiglu: bool
):
    model = {"layers": 1, "hidden": hidden, "heads": 8, "vocab": 1000, "activation": "swiglu" if swiglu else "gelu"}
    choices = {"sequence": tokens, "precision": "fp16", "recompute": "none", "attention": attention}

    def cost(microbatch: int):
        job = make_job(model, microbatch=microbatch, **choices)
        return stage_costs(make_plan(1, gpus=(gpu,), job=job, tensor_parallel=tensor_parallel))[0]

    one, more = cost(microbatch), cost(microbatch + 1)
    peak = GPUS[gpu].fp16 * tensor_parallel
    assert one.forward_s >= one.flops.forward / peak
    assert one.backward_s >= (one.flops.input_gradient + one.flops.weight_gradient) / peak
    assert 0 < one.weight_grad_s < one.backward_s
    assert one.forward_s < more.forward_s and one.backward_s < more.backward_s
