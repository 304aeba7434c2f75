import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from geotrain.errors import InputError, RunError
from geotrain.model import Config, Part, stored_name, weights
from tests.model.tiny import config, filled, tokens

SHAPES = {
    "grouped": config(),
    "tied": config(tie_word_embeddings=True),
    "one key head, odd sizes": config(num_key_value_heads=1, intermediate_size=7, vocab_size=5, rope_theta=77.0),
    "every head its own, own head size": config(num_key_value_heads=4, head_dim=10, rms_norm_eps=1e-2),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def theirs(shape: Config) -> LlamaForCausalLM:
    """Their model with their own random weights."""
    torch.manual_seed(5)
    fields = shape.model_dump(exclude={"rope_theta", "rope_scaling", "sliding_window"})
    return LlamaForCausalLM(
        LlamaConfig(**fields, rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta})
    )


def assert_equal_logits(ours: Part, transformers: LlamaForCausalLM) -> None:
    ids = tokens(ours.config, 3, 50)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), transformers(ids).logits, rtol=1e-5, atol=1e-5)


@each_shape
def test_transformers_computes_the_same_from_what_we_save(tmp_path: Path, shape: Config):
    ours = filled(shape)
    weights.save(tmp_path, shape, ours.named_parameters())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert_equal_logits(ours, LlamaForCausalLM.from_pretrained(tmp_path))


@each_shape
@pytest.mark.parametrize("shard", ["1GB", "4KB"])
def test_we_compute_the_same_from_what_transformers_saves(tmp_path: Path, shape: Config, shard: str):
    model = theirs(shape)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / weights.INDEX).exists() == (shard == "4KB")
    ours = Part(Config.load(tmp_path / "config.json"))
    weights.load(ours, tmp_path)
    assert_equal_logits(ours, model)


@each_shape
def test_gradients_are_those_of_transformers(shape: Config):
    model, ours = theirs(shape), Part(shape)
    ours.load_state_dict({name: parameter.detach() for name, parameter in model.named_parameters()})
    ids = tokens(shape, 2, 9)
    for outcome in (model(ids).logits, ours(ids)):
        (outcome * torch.cos(torch.arange(outcome.numel()).view(outcome.shape))).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(ours.get_parameter(name).grad, parameter.grad, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("tied", [False, True])
def test_a_part_gets_its_own_tensors_and_reads_no_other_file(tmp_path: Path, tied: bool):
    shape = config(tie_word_embeddings=tied)
    whole = filled(shape)
    files: dict[str, dict[str, Tensor]] = {}
    for name, parameter in whole.named_parameters():
        files.setdefault("ends" if "layers" not in name else name.split(".")[2], {})[name] = parameter.detach()
    for file, tensors in files.items():
        save_file(tensors, tmp_path / f"{file}.safetensors")
    places = {name: f"{file}.safetensors" for file, tensors in files.items() for name in tensors}
    (tmp_path / weights.INDEX).write_text(json.dumps({"weight_map": places}))
    (tmp_path / "0.safetensors").unlink()
    (tmp_path / "1.safetensors").write_text("no tensors")
    last = Part(shape, first=2, embeds=False)
    weights.load(last, tmp_path)
    for name, parameter in last.named_parameters():
        assert torch.equal(parameter, whole.get_parameter(stored_name(shape, name))), name
    with pytest.raises(InputError, match=r"0\.safetensors: no such file"):
        weights.load(Part(shape, last=1, heads=False), tmp_path)
    with pytest.raises(InputError, match=r"1\.safetensors: not valid safetensors: "):
        weights.load(Part(shape, first=1, last=2, embeds=False, heads=False), tmp_path)


def test_parts_may_be_saved_one_after_the_other_in_any_order(tmp_path: Path):
    shape = config(tie_word_embeddings=True)
    parts = [filled(shape, first=1, embeds=False), filled(shape, last=1, heads=False)]
    weights.save(tmp_path, shape, (item for part in parts for item in part.named_parameters()), dtype=torch.bfloat16)
    kept = load_file(tmp_path / weights.FILE)
    assert {tensor.dtype for tensor in kept.values()} == {torch.bfloat16}
    whole = Part(shape)
    weights.load(whole, tmp_path)
    for name, parameter in filled(shape).named_parameters():
        assert torch.equal(whole.get_parameter(name), parameter.bfloat16().float()), name


def test_old_files_may_hold_what_is_not_needed(tmp_path: Path):
    shape = config(tie_word_embeddings=True)
    whole = filled(shape)
    tensors = {name: parameter.detach() for name, parameter in whole.named_parameters()}
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(tensors, tmp_path / weights.FILE)
    again = Part(shape)
    weights.load(again, tmp_path)
    assert all(torch.equal(again.get_parameter(name), parameter) for name, parameter in whole.named_parameters())


def test_a_save_that_fails_leaves_the_file_before_it(tmp_path: Path):
    shape = config()
    whole = filled(shape)
    weights.save(tmp_path, shape, whole.named_parameters())
    before = (tmp_path / weights.FILE).read_bytes()
    items = list(whole.state_dict().items())
    name, norm = items[-2]
    bad: dict[str, list[tuple[str, Tensor]]] = {
        "tensor 'lm_head.weight' was not given": items[:-1],
        f"tensor {name!r} of shape [16] is not expected, or not again": [*items[:-1], (name, norm)],
        f"tensor {name!r} of shape [8] must be [16]": [(name, norm[:8])],
        "tensor 'other' of shape [16] is not expected, or not again": [("other", norm)],
    }
    for sentence, tensors in bad.items():
        with pytest.raises(InputError) as caught:
            weights.save(tmp_path, shape, tensors)
        assert str(caught.value) == f"{tmp_path / weights.FILE}: {sentence}"
    assert (tmp_path / weights.FILE).read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_full_disk_leaves_the_file_before_it(tmp_path: Path):
    shape = config()
    weights.save(tmp_path, shape, filled(shape).named_parameters())
    before = (tmp_path / weights.FILE).read_bytes()
    (tmp_path / f"{weights.FILE}.partial").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"model\.safetensors: cannot be written: No space left on device"):
        weights.save(tmp_path, shape, filled(shape, seed=2).named_parameters())
    assert (tmp_path / weights.FILE).read_bytes() == before


@pytest.fixture
def damaged(tmp_path: Path):
    """A model's directory, after something was done to its tensors, and what loading it says."""

    def damaged(shape: Config, change) -> str:
        weights.save(tmp_path, config(), filled(config()).named_parameters())
        tensors = load_file(tmp_path / weights.FILE)
        change(tensors)
        save_file(tensors, tmp_path / weights.FILE)
        with pytest.raises(InputError) as caught:
            weights.load(Part(shape), tmp_path)
        return str(caught.value).replace(str(tmp_path), "DIR")

    return damaged


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("shape", "change", "sentence"),
    [
        pytest.param(
            config(),
            lambda tensors: tensors.pop(NORM),
            f"DIR: tensor {NORM!r} is missing, for a model of 3 layers",
            id="missing",
        ),
        pytest.param(
            config(),
            lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(16)}),
            "DIR: tensor 'model.layers.0.self_attn.q_proj.bias' does not belong to a llama of 3 layers",
            id="extra",
        ),
        pytest.param(
            config(num_hidden_layers=4),
            lambda tensors: None,
            "DIR: tensor 'model.layers.3.input_layernorm.weight' (and 8 more) is missing, for a model of 4 layers",
            id="too few layers",
        ),
        pytest.param(
            config(num_hidden_layers=2),
            lambda tensors: None,
            "DIR: tensor 'model.layers.2.input_layernorm.weight' (and 8 more) does not belong to a llama of 2 layers",
            id="too many layers",
        ),
        pytest.param(
            config(vocab_size=38),
            lambda tensors: None,
            "DIR/model.safetensors: tensor 'model.embed_tokens.weight' has the shape [37, 16] and must have [38, 16]",
            id="another vocabulary",
        ),
        pytest.param(
            config(),
            lambda tensors: tensors.update({NORM: torch.ones(16, dtype=torch.int8)}),
            f"DIR/model.safetensors: tensor {NORM!r} is I8 and must be F64 or F32 or BF16 or F16",
            id="quantized",
        ),
    ],
)
def test_weights_of_another_model(damaged, shape: Config, change, sentence: str):
    assert damaged(shape, change) == sentence


@pytest.mark.parametrize("kept_bytes", [0, 5, 300, -1], ids=str)
def test_a_file_that_was_cut_off(tmp_path: Path, kept_bytes: int):
    shape = config()
    weights.save(tmp_path, shape, filled(shape).named_parameters())
    file = tmp_path / weights.FILE
    file.write_bytes(file.read_bytes()[:kept_bytes])
    with pytest.raises(InputError) as caught:
        weights.load(Part(shape), tmp_path)
    assert str(caught.value).startswith(f"{file}: not valid safetensors: ")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "\xff"])
def test_an_index_that_is_none(tmp_path: Path, text: str):
    (tmp_path / weights.INDEX).write_text(text)
    with pytest.raises(InputError) as caught:
        weights.load(Part(config()), tmp_path)
    assert str(caught.value) == f"{tmp_path / weights.INDEX}: must be JSON with a weight_map of tensors and their files"


def test_a_directory_without_weights(tmp_path: Path):
    with pytest.raises(InputError) as caught:
        weights.load(Part(config()), tmp_path / "none")
    assert str(caught.value) == f"{tmp_path / 'none'}: has neither model.safetensors nor model.safetensors.index.json"
