"""Published families of models, against transformers."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from geotrain.model import Config, Part, generate, weights
from geotrain.model.rotary import frequencies
from tests.model.families import FAMILIES, continuation, published
from tests.model.tiny import tokens

NEW = 12
each_family = pytest.mark.parametrize("name", FAMILIES)


@each_family
def test_greedy_tokens_and_logits_are_those_of_transformers(tmp_path: Path, name: str):
    theirs = published(tmp_path, name)
    config = Config.load(tmp_path / "config.json")
    assert Config.load(tmp_path / "transformers5.json") == config, "as transformers 5 spells it"
    ours = Part(config)
    weights.load(ours, tmp_path)
    ids = tokens(config, 2, 400)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4)
    for length in (1, 15, 17, 400):
        prompt = ids[0, :length].tolist()
        assert list(generate(ours, prompt, max_new_tokens=NEW)) == continuation(theirs, prompt, NEW)


@each_family
def test_stages_make_up_the_model_and_gradients_are_those_of_transformers(tmp_path: Path, name: str):
    theirs = published(tmp_path, name)
    config = Config.load(tmp_path / "config.json")
    parts = [Part(config, last=1, heads=False), Part(config, first=1, embeds=False)]
    for part in parts:
        weights.load(part, tmp_path)
    ids = tokens(config, 2, 70)
    for outcome in (theirs(ids).logits, parts[1](parts[0](ids))):
        (outcome * torch.cos(torch.arange(outcome.numel()).view(outcome.shape))).sum().backward()
    expected = {key: parameter.grad for key, parameter in theirs.named_parameters()}
    found: dict[str, torch.Tensor] = {}
    for key, parameter in (item for part in parts for item in part.named_parameters()):
        assert parameter.grad is not None
        key = "model.embed_tokens.weight" if key == "lm_head.weight" and config.tie_word_embeddings else key
        found[key] = found[key] + parameter.grad if key in found else parameter.grad
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, rtol=0, atol=1e-4 * float(gradient.abs().max()))


@each_family
def test_what_we_save_transformers_loads_as_the_same_model(tmp_path: Path, name: str):
    theirs = published(tmp_path, name)
    config = Config.load(tmp_path / "config.json")
    ours, out = Part(config), tmp_path / "out"
    weights.load(ours, tmp_path)
    weights.save(out, config, ours.named_parameters())
    again = AutoModelForCausalLM.from_pretrained(out)
    assert type(again) is type(theirs)
    assert again.config.rope_parameters == theirs.config.rope_parameters
    said = json.loads((out / "config.json").read_text())
    assert (said["rope_theta"], said["rope_scaling"]) == (
        FAMILIES[name]["rope_theta"],
        FAMILIES[name].get("rope_scaling"),
    ), "as transformers 4 reads it"
    ids = tokens(config, 1, 90)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, theirs(ids).logits)
    assert Config.load(out / "config.json") == config


@pytest.mark.parametrize("name", ["Llama 3.1 8B", "Llama 3.2 1B", "Llama 3.1, original context of 64"])
def test_the_scaling_changes_slow_rotations_only(tmp_path: Path, name: str):
    theirs = published(tmp_path, name)
    config = Config.load(tmp_path / "config.json")
    found = frequencies(config, torch.device("cpu"))
    torch.testing.assert_close(found, theirs.model.rotary_emb.inv_freq)
    plain = frequencies(config.model_copy(update={"rope_scaling": None}), torch.device("cpu"))
    assert config.rope_scaling is not None
    assert found[0] == plain[0]
    torch.testing.assert_close(found[-1], plain[-1] / config.rope_scaling.factor)
