from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.workload import MODELS, Model
from geotrain.workload.catalog import find_model


@pytest.mark.parametrize(
    ("name", "published"),
    [
        pytest.param("gpt-3-175b", 174.6e9, id="gpt-3-175b"),
        pytest.param("megatron-1t", 1008e9, id="megatron-1t"),
        pytest.param("llama-2-70b", 68.98e9, id="llama-2-70b"),
        pytest.param("llama-3.1-8b", 8.03e9, id="llama-3.1-8b"),
        pytest.param("llama-3.1-405b", 405.9e9, id="llama-3.1-405b"),
        pytest.param("llama-3.2-1b", 1.236e9, id="llama-3.2-1b"),
        pytest.param("llama-3.2-3b", 3.213e9, id="llama-3.2-3b"),
        pytest.param("qwen2.5-0.5b", 0.494e9, id="qwen2.5-0.5b"),
        pytest.param("qwen2.5-7b", 7.62e9, id="qwen2.5-7b"),
    ],
)
def test_catalog_models_have_the_published_number_of_parameters(name: str, published: float):
    assert MODELS[name].parameters == pytest.approx(published, rel=0.002)


def test_what_is_left_out_follows_from_the_rest():
    model = Model(layers=2, hidden=8, heads=2, vocab=10)
    assert (model.kv_heads, model.head_dim, model.ffn) == (2, 4, 32)


def test_parameters_add_up():
    model = Model(layers=2, hidden=8, heads=4, kv_heads=2, ffn=16, vocab=10, activation="swiglu")
    assert model.attention_parameters == 8 * 8 + 2 * 8 * 4 + 8 * 8
    assert model.ffn_parameters == 3 * 8 * 16
    assert model.parameters == 2 * (192 + 384) + 2 * 80
    assert model.model_copy(update={"tied_embeddings": True}).parameters == 2 * (192 + 384) + 80


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param({"layers": 0}, "layers is 0 and must be at least 1", id="no-layers"),
        pytest.param(
            {"hidden": 9}, "hidden is 9 and must be a multiple of heads, 4, unless head_dim is given", id="uneven-heads"
        ),
        pytest.param({"kv_heads": 3}, "heads is 4 and must be a multiple of kv_heads, 3", id="uneven-groups"),
        pytest.param({"heads": "4"}, "heads is '4' and must be a whole number", id="text-for-a-number"),
        pytest.param(
            {"activation": "swigul"},
            "activation is 'swigul' and must be 'gelu' or 'swiglu': did you mean 'swiglu'?",
            id="near-activation",
        ),
    ],
)
def test_a_wrong_model_says_what_is_wrong(change: dict[str, object], sentence: str):
    with pytest.raises(InputError) as caught:
        Model.parse({"layers": 2, "hidden": 8, "heads": 4, "vocab": 10} | change, source=Path("model.yaml"))
    assert str(caught.value) == f"model.yaml: {sentence}"


def test_an_unknown_model_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"is not in the model catalog: did you mean 'llama-3.1-8b'\?"):
        find_model("llama-3-8b")
    with pytest.raises(ValueError, match=r"is not in the model catalog: see `geotrain catalog`"):
        find_model("zzz")
