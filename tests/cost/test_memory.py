from typing import Any

import pytest

from geotrain.cost.memory import Memory, boundary_bytes, optimizer_bytes, stage_memory, stage_parameters
from geotrain.workload import MODELS, Job
from tests.cost.jobs import make_job

GPT_LAYER = 12 * 4096**2
"""Weights of a layer of gpt-a."""
GPT_EMBEDDING = 50257 * 4096
TOKENS_BY_HIDDEN = 4096 * 4096
"""s b h of gpt-a."""


def memory(job: Job, layers: float, **choices: Any) -> Memory:
    middle = {"is_first": False, "is_last": False, "tensor_parallel": 1, "sequence_parallel": True}
    return stage_memory(job, layers, **middle | choices)


@pytest.mark.parametrize(
    ("name", "published", "within"),
    [
        # Brown et al. 2020; Narayanan et al. 2021, table 1; the checkpoints' own counts for Llama and Qwen.
        # The two smallest are printed with one decimal, which is that coarse.
        pytest.param("gpt-3-175b", 175e9, 0.01, id="gpt-3-175b"),
        pytest.param("megatron-1.7b", 1.7e9, 0.035, id="megatron-1.7b"),
        pytest.param("megatron-3.6b", 3.6e9, 0.015, id="megatron-3.6b"),
        pytest.param("megatron-7.5b", 7.5e9, 0.01, id="megatron-7.5b"),
        pytest.param("megatron-18b", 18.4e9, 0.01, id="megatron-18b"),
        pytest.param("megatron-39b", 39.1e9, 0.01, id="megatron-39b"),
        pytest.param("megatron-76b", 76.1e9, 0.01, id="megatron-76b"),
        pytest.param("megatron-146b", 145.6e9, 0.01, id="megatron-146b"),
        pytest.param("megatron-310b", 310.1e9, 0.01, id="megatron-310b"),
        pytest.param("megatron-530b", 529.6e9, 0.01, id="megatron-530b"),
        pytest.param("megatron-1t", 1008.0e9, 0.01, id="megatron-1t"),
        pytest.param("llama-2-7b", 6.738e9, 0.002, id="llama-2-7b"),
        pytest.param("llama-2-13b", 13.016e9, 0.002, id="llama-2-13b"),
        pytest.param("llama-2-70b", 68.98e9, 0.002, id="llama-2-70b"),
        pytest.param("llama-3.1-8b", 8.03e9, 0.002, id="llama-3.1-8b"),
        pytest.param("llama-3.1-70b", 70.55e9, 0.002, id="llama-3.1-70b"),
        pytest.param("llama-3.1-405b", 405.85e9, 0.002, id="llama-3.1-405b"),
        pytest.param("qwen2.5-7b", 7.616e9, 0.002, id="qwen2.5-7b"),
        pytest.param("qwen2.5-72b", 72.706e9, 0.002, id="qwen2.5-72b"),
    ],
)
def test_one_stage_with_all_layers_holds_the_published_model(name: str, published: float, within: float):
    weights = stage_parameters(make_job(name), MODELS[name].layers, is_first=True, is_last=True)
    assert weights == pytest.approx(published, rel=within)


@pytest.mark.parametrize(
    ("is_first", "is_last", "embeddings"),
    [
        pytest.param(True, False, 1, id="first"),
        pytest.param(False, False, 0, id="middle"),
        pytest.param(False, True, 1, id="last"),
        pytest.param(True, True, 1, id="only-stage-ties-them"),
    ],
)
def test_embedding_and_head_live_on_the_ends(is_first: bool, is_last: bool, embeddings: int):
    weights = stage_parameters(make_job("gpt-a"), 3, is_first=is_first, is_last=is_last)
    assert weights == 3 * GPT_LAYER + embeddings * GPT_EMBEDDING


def test_an_untied_head_is_a_matrix_of_its_own():
    llama = MODELS["llama-3.1-8b"]
    assert stage_parameters(make_job(llama.name), 32, is_first=True, is_last=True) == llama.parameters
    assert llama.parameters == 32 * llama.layer_parameters + 2 * llama.embedding_parameters


def test_one_hidden_vector_per_token_crosses_a_boundary():
    assert boundary_bytes(make_job("gpt-a")) == 33_554_432
    assert boundary_bytes(make_job("gpt-a", microbatch=2, precision="fp32")) == 4 * 33_554_432


@pytest.mark.parametrize(
    ("precision", "optimizer", "state", "per_weight"),
    [
        pytest.param("bf16", "adam", 12, 16, id="bf16-adam"),
        pytest.param("fp16", "adam", 12, 16, id="fp16-adam"),
        pytest.param("fp32", "adam", 8, 16, id="fp32-adam"),
        pytest.param("bf16", "sgd", 8, 12, id="bf16-sgd"),
        pytest.param("fp32", "sgd", 4, 12, id="fp32-sgd"),
    ],
)
def test_bytes_of_weight_gradient_and_optimizer_state(precision: str, optimizer: str, state: int, per_weight: int):
    job = make_job(precision=precision, optimizer=optimizer)
    assert optimizer_bytes(job) == state
    assert memory(job, 1).static_bytes == per_weight * GPT_LAYER


@pytest.mark.parametrize("recompute", ["selective", "none"])
def test_a_gpt_layer_keeps_34_bytes_and_postpones_32_per_token_and_hidden(recompute: str):
    assert memory(make_job(recompute=recompute), 2) == Memory(
        static_bytes=16 * 2 * GPT_LAYER,
        activation_bytes=2 * 34 * TOKENS_BY_HIDDEN,
        weight_grad_bytes=2 * 32 * TOKENS_BY_HIDDEN,
        recomputed_bytes=0,
        workspace_bytes=0,
    )


def test_full_recompute_keeps_the_stage_input_and_brings_one_microbatch_back():
    assert memory(make_job(recompute="full"), 2) == Memory(
        static_bytes=16 * 2 * GPT_LAYER,
        activation_bytes=2 * TOKENS_BY_HIDDEN,
        weight_grad_bytes=2 * 32 * TOKENS_BY_HIDDEN,
        recomputed_bytes=2 * 34 * TOKENS_BY_HIDDEN,
        workspace_bytes=2 * 34 * TOKENS_BY_HIDDEN,
    )


@pytest.mark.parametrize("t", [1, 2, 8])
def test_the_last_stage_has_logits_and_their_gradients_and_some_in_32_bit(t: int):
    logits, in_32_bit = 4096 * 50257 / t, 2**22
    last = memory(make_job(recompute="none"), 0, is_last=True, tensor_parallel=t)
    assert last.workspace_bytes == 2 * 2 * logits + 2 * 4 * in_32_bit


def test_the_logits_of_a_head_that_is_the_embedding_as_well_are_not_spread():
    one, eight = (memory(make_job(), 0, is_first=True, is_last=True, tensor_parallel=t) for t in (1, 8))
    assert eight.workspace_bytes == one.workspace_bytes


def test_layerwise_recompute_keeps_each_layers_input_and_brings_one_layer_back():
    assert memory(make_job(recompute="layerwise"), 3) == Memory(
        static_bytes=16 * 3 * GPT_LAYER,
        activation_bytes=3 * 2 * TOKENS_BY_HIDDEN,
        weight_grad_bytes=3 * 32 * TOKENS_BY_HIDDEN,
        recomputed_bytes=0,
        workspace_bytes=34 * TOKENS_BY_HIDDEN,
    )


def test_scores_that_are_not_fused_are_held_where_they_are_not_redone():
    """Korthikanti et al. 2022, equation 1: 5 a s / h on top of 34, for s b h of each layer."""
    scores = 5 * 32 * 4096 * 4096
    none, selective = (memory(make_job(recompute=r, attention="unfused"), 2) for r in ("none", "selective"))
    assert none.activation_bytes == 2 * (34 * TOKENS_BY_HIDDEN + scores)
    assert (selective.activation_bytes, selective.workspace_bytes) == (2 * 34 * TOKENS_BY_HIDDEN, scores)


def test_in_32_bit_only_the_masks_stay_a_byte():
    assert memory(make_job(recompute="none", precision="fp32"), 1).activation_bytes == (2 * 32 + 2) * TOKENS_BY_HIDDEN


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize(
    ("sequence_parallel", "per_token_and_hidden"),
    [
        pytest.param(False, lambda t: 10 + 24 / t, id="tensor-parallel"),
        pytest.param(True, lambda t: 34 / t, id="and-sequence-parallel"),
    ],
)
def test_tensor_parallel_gpus_share_weights_and_activations(t: int, sequence_parallel: bool, per_token_and_hidden):
    """Korthikanti et al. 2022, equations 2 and 4."""
    split = memory(make_job(recompute="none"), 1, tensor_parallel=t, sequence_parallel=sequence_parallel)
    assert split == Memory(
        static_bytes=16 * GPT_LAYER / t,
        activation_bytes=per_token_and_hidden(t) * TOKENS_BY_HIDDEN,
        weight_grad_bytes=32 / t * TOKENS_BY_HIDDEN,
        recomputed_bytes=0,
        workspace_bytes=0,
    )


@pytest.mark.parametrize(("sequence_parallel", "kept"), [(False, 2.0), (True, 0.5)], ids=["whole", "spread"])
def test_sequence_parallel_spreads_the_kept_input_too(sequence_parallel: bool, kept: float):
    split = memory(make_job(recompute="full"), 1, tensor_parallel=4, sequence_parallel=sequence_parallel)
    assert split.activation_bytes == kept * TOKENS_BY_HIDDEN


def test_swiglu_and_grouped_heads_count_what_they_have():
    """Per token: 4 hidden, query, key and value, attention output, three inner values; inputs and output gradients."""
    job = make_job("llama-3.1-8b", recompute="none")
    h, kv, ffn = 4096, 2 * 8 * 128, 14336
    kept, masks = 4 * h + h + kv + h + 3 * ffn, 2 * h
    postponed = (2 * h + h + ffn) + (h + kv + 2 * h + 2 * ffn)
    layer = memory(job, 1)
    assert layer.activation_bytes == job.sequence * (2 * kept + masks)
    assert layer.weight_grad_bytes == job.sequence * 2 * postponed


def test_a_stage_without_layers_still_holds_its_input():
    assert memory(make_job(recompute="none"), 0).activation_bytes == 2 * TOKENS_BY_HIDDEN
