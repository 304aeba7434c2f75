"""The model of a checkpoint as files that others read."""

import pytest
import torch
from safetensors.torch import load_file

from geotrain.errors import InputError
from geotrain.model import Config
from geotrain.training.checkpoint import DamagedError, export
from tests.training.checkpoint.states import MODEL, cut, save, trained


def test_the_parameters_of_all_stages_are_exported_without_the_optimizer(tmp_path):
    state = trained()
    save(tmp_path, 10, *cut(state, [1, 1, 1]))
    export(tmp_path, 10, tmp_path / "model")

    assert Config.load(tmp_path / "model" / "config.json") == MODEL
    found = load_file(tmp_path / "model" / "model.safetensors")
    assert found.keys() == {name for name in state if not name.startswith("optimizer.")}
    assert all(torch.equal(found[name], state[name]) for name in found)


def test_a_tied_head_that_two_stages_have_is_exported_once(tmp_path):
    tied = MODEL.model_copy(update={"tie_word_embeddings": True})
    first, last = cut(trained(tied), [2, 1])
    embedding = "model.embed_tokens.weight"
    save(tmp_path, 10, first, last | {embedding: first[embedding], "lm_head.weight": first[embedding]}, model=tied)
    export(tmp_path, 10, tmp_path / "model")
    found = load_file(tmp_path / "model" / "model.safetensors")
    assert "lm_head.weight" not in found
    assert torch.equal(found[embedding], first[embedding])


def test_an_incomplete_or_damaged_step_is_not_exported(tmp_path):
    stages = cut(trained(), [2, 1])
    save(tmp_path, 10, *stages)
    save(tmp_path, 20, *stages[:1], num_stages=2)
    with pytest.raises(InputError, match=r"step 20 is not complete here; complete steps: 10$"):
        export(tmp_path, 20, tmp_path / "model")
    (tmp_path / "step-00000010" / "stage-01" / "__0_0.distcp").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"stage-01/__0_0.distcp: is damaged: 0 bytes instead of"):
        export(tmp_path, 10, tmp_path / "model")
    assert not (tmp_path / "model" / "model.safetensors").exists()
