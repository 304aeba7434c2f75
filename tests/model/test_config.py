import json
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from geotrain.errors import InputError
from geotrain.model import Config
from geotrain.workload import MODELS, Model
from tests.model.tiny import config

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


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
    for field in set(Config.model_fields) - {"rope_theta", "bos_token_id", "eos_token_id"}:
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
    "ours",
    [config(), config(tie_word_embeddings=True, rope_theta=5e5, head_dim=6, eos_token_id=[3, 4], rms_norm_eps=1e-5)],
)
def test_it_comes_back_and_transformers_reads_it(tmp_path: Path, ours: Config):
    ours.save(tmp_path / "config.json")
    assert Config.load(tmp_path / "config.json") == ours
    theirs = LlamaConfig.from_pretrained(tmp_path)
    for field in set(Config.model_fields) - {"rope_theta"}:
        assert getattr(theirs, field) == getattr(ours, field), field
    assert theirs.rope_parameters == {"rope_type": "default", "rope_theta": ours.rope_theta}
    theirs.save_pretrained(tmp_path)
    assert Config.load(tmp_path / "config.json") == ours


def test_tokens_that_end_a_text(load):
    assert [load(eos_token_id=ids).stop_ids for ids in (None, 2, [2, 3])] == [(), (2,), (2, 3)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "qwen2"}, 'model_type is "qwen2" and must be "llama"'),
        ({"attention_bias": True}, "attention_bias is true and must be false"),
        ({"mlp_bias": True}, "mlp_bias is true and must be false"),
        ({"hidden_act": "gelu"}, 'hidden_act is "gelu" and must be "silu"'),
        ({"attention_dropout": 0.1}, "attention_dropout is 0.1 and must be 0.0"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}},
            'rope_scaling.rope_type is "linear" and must be "default": unscaled positions',
        ),
        (
            {"rope_parameters": {"rope_type": "llama3"}},
            'rope_parameters.rope_type is "llama3" and must be "default": unscaled positions',
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
        ({"hidden_size": 66}, "hidden_size is 66 and must be a multiple of num_attention_heads, 4"),
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
