import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, LlamaConfig

from geotrain.errors import InputError
from geotrain.model import Config
from geotrain.workload import MODELS, Model, RopeScaling
from tests.model.tiny import config

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


LLAMA_3_1 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
ELSEWHERE = {"rope_theta", "rope_scaling", "sliding_window"}
"""Fields that a LlamaConfig has not, or under another name."""


@pytest.fixture
def load(tmp_path: Path):
    def load(**changes: object) -> Config:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(SMALL | changes))
        return Config.load(path)

    return load


def test_what_a_file_leaves_out_is_what_transformers_takes(load):
    theirs = LlamaConfig(**SMALL)
    ours = load(rope_scaling=None, head_dim=None, architectures=["LlamaForCausalLM"])
    for field in set(Config.model_fields) - {*ELSEWHERE, "bos_token_id", "eos_token_id"}:
        assert getattr(ours, field) == getattr(theirs, field), field
    assert theirs.rope_parameters == {"rope_type": "default", "rope_theta": ours.rope_theta}


@pytest.mark.parametrize(
    "rope",
    [
        pytest.param({"rope_theta": 500000}, id="transformers 4"),
        pytest.param({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, id="transformers 5"),
        pytest.param({"rope_theta": 5e5, "rope_scaling": {"type": "default"}}, id="explicit"),
    ],
)
def test_the_base_of_the_positions_wherever_it_is(load, rope: dict[str, object]):
    assert load(**rope).rope_theta == 5e5


@pytest.mark.parametrize(
    "rope",
    [
        pytest.param({"rope_theta": 5e5, "rope_scaling": LLAMA_3_1}, id="transformers 4"),
        pytest.param({"rope_theta": 5e5, "rope_scaling": {**LLAMA_3_1, "type": "llama3"}}, id="both spellings"),
        pytest.param({"rope_parameters": {**LLAMA_3_1, "rope_theta": 5e5}}, id="transformers 5"),
        pytest.param({"rope_parameters": {**LLAMA_3_1, "rope_theta": 5e5}, "rope_scaling": None}, id="null beside it"),
    ],
)
def test_the_scaling_of_the_positions_wherever_it_is(load, rope: dict[str, object]):
    found = load(**rope)
    assert (found.rope_theta, found.rope_scaling) == (5e5, RopeScaling(**LLAMA_3_1))
    assert load(**{**rope, "rope_scaling": {"type": "default"}, "rope_parameters": None}).rope_scaling is None


@pytest.mark.parametrize(
    "ours",
    [config(), config(tie_word_embeddings=True, rope_theta=5e5, head_dim=6, eos_token_id=[3, 4], rms_norm_eps=1e-5)],
)
def test_it_comes_back_and_transformers_reads_it(tmp_path: Path, ours: Config):
    ours.save(tmp_path / "config.json")
    assert Config.load(tmp_path / "config.json") == ours
    theirs = LlamaConfig.from_pretrained(tmp_path)
    for field in set(Config.model_fields) - ELSEWHERE:
        assert getattr(theirs, field) == getattr(ours, field), field
    assert theirs.rope_parameters == {"rope_type": "default", "rope_theta": ours.rope_theta}
    theirs.save_pretrained(tmp_path)
    assert Config.load(tmp_path / "config.json") == ours


def test_tokens_that_end_a_text(load):
    assert [load(eos_token_id=ids).stop_ids for ids in (None, 2, [2, 3])] == [(), (2,), (2, 3)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model_type": "gemma2"},
            'model_type is "gemma2" and must be "llama" or "qwen2" or "qwen3" or "mistral"',
        ),
        ({"model_type": "mistral", "attention_bias": True}, "attention_bias is true and must be false"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is true and must be false"),
        (
            {"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]},
            'layer_types has "sliding_attention" and must have "full_attention" only',
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5 and must be 1.0"),
        ({"mlp_bias": True}, "mlp_bias is true and must be false"),
        ({"hidden_act": "gelu"}, 'hidden_act is "gelu" and must be "silu"'),
        ({"attention_dropout": 0.1}, "attention_dropout is 0.1 and must be 0.0"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}},
            'rope_scaling.rope_type is "linear" and must be "default" or "llama3"',
        ),
        (
            {"rope_parameters": {"rope_type": "yarn"}},
            'rope_parameters.rope_type is "yarn" and must be "default" or "llama3"',
        ),
        ({"rope_parameters": {**LLAMA_3_1, "factor": 0.5}}, "rope_parameters.factor is 0.5 and must be at least 1"),
        ({"rope_scaling": {**LLAMA_3_1, "high_freq_factor": None}}, "rope_scaling.high_freq_factor is missing"),
        (
            {"rope_scaling": {**LLAMA_3_1, "low_freq_factor": 4.0}},
            "rope_scaling.high_freq_factor is 4 and must be above low_freq_factor, 4",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            "rope_parameters.full_attention is a mapping and must not be: all layers have the same positions",
        ),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "rope_parameters.partial_rotary_factor is 0.5 and must be 1",
        ),
        ({"rope_parameters": 3}, "rope_parameters is 3 and must be a mapping of fields"),
        ({"rope_parameters": {"rope_theta": 0}}, "rope_theta is 0 and must be above 0"),
        ({"vocab_size": 0}, "vocab_size is 0 and must be at least 1"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"hidden_size": "64"}, "hidden_size is '64' and must be a whole number"),
        (
            {"hidden_size": 66},
            "hidden_size is 66 and must be a multiple of num_attention_heads, 4, where head_dim is not given",
        ),
        ({"num_key_value_heads": 3}, "num_attention_heads is 4 and must be a multiple of num_key_value_heads, 3"),
        ({"head_dim": 5}, "head_dim is 5 and must be even, for positions turn pairs of its numbers"),
    ],
)
def test_what_it_cannot_do_it_refuses(load, tmp_path: Path, changes: dict[str, object], sentence: str):
    with pytest.raises(InputError) as caught:
        load(**changes)
    assert str(caught.value) == f"{tmp_path / 'config.json'}: {sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[1]", "must be a mapping of fields, but is a list"),
        (None, "no such file"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, text: str | None, sentence: str):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as caught:
        Config.load(path)
    assert str(caught.value) == f"{path}: {sentence}"


def test_the_decoder_of_a_job():
    found = Config.of(MODELS["llama-2-70b"])
    assert found == Config(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=32000,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
    )
    assert Config.of(MODELS["llama-2-70b"], sequence=512).max_position_embeddings == 512


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-2-7b", ("llama", 1e4, None, 1e-5, False)),
        ("llama-3.1-8b", ("llama", 5e5, 8.0, 1e-5, False)),
        ("llama-3.2-1b", ("llama", 5e5, 32.0, 1e-5, True)),
        ("qwen2.5-7b", ("qwen2", 1e6, None, 1e-6, False)),
        ("qwen2.5-0.5b", ("qwen2", 1e6, None, 1e-6, True)),
    ],
)
def test_a_catalog_model_is_trained_as_it_was_published(tmp_path: Path, name: str, expected: tuple[object, ...]):
    Config.of(MODELS[name]).save(tmp_path / "config.json")
    theirs = AutoConfig.from_pretrained(tmp_path)
    rope = theirs.rope_parameters
    found = theirs.model_type, rope["rope_theta"], rope.get("factor"), theirs.rms_norm_eps, theirs.tie_word_embeddings
    assert found == expected


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            MODELS["gpt-a"],
            "model gpt-a: activation is 'gelu' and must be 'swiglu': only the Llama family can be trained",
        ),
        (
            Model(layers=1, hidden=15, heads=5, vocab=9, activation="swiglu"),
            "model custom: head_dim is 3 and must be even, for positions turn pairs of its numbers",
        ),
    ],
)
def test_jobs_whose_model_is_no_llama(model: Model, sentence: str):
    with pytest.raises(InputError) as caught:
        Config.of(model)
    assert str(caught.value) == sentence
