import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from geotrain.tokens.build import build, learn
from geotrain.tokens.texts import Tree, find_texts
from tests.training.checkpoint.states import MODEL, cut, save, trained


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("saved")
    for step in (10, 20):
        save(directory, step, *cut(trained(updates=step), [1, 1, 1]))
    save(directory, 30, *cut(trained(), [1, 1, 1])[:1], num_stages=3)
    return directory


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    """Complete after steps 10 and 20, one stage of three after step 30."""
    shutil.copytree(saved, tmp_path / "run" / "checkpoints")
    return tmp_path / "run"


@pytest.mark.parametrize(("asked", "step"), [([], 20), (["--step", "latest"], 20), (["--step", "10"], 10)])
def test_the_model_of_a_step(geotrain, run: Path, tmp_path: Path, asked: list[str], step: int):
    out = tmp_path / "model"
    answer = geotrain("export", run, "--out", out, *asked)
    assert (answer.exit_code, answer.out.splitlines()[0]) == (0, f"wrote {out}: the model after step {step}")
    weights = trained(updates=step)
    found = load_file(out / "model.safetensors")
    assert all(torch.equal(found[name], weights[name]) for name in found)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]


def test_the_tokenizer_goes_along_and_the_model_speaks(geotrain, tmp_path: Path):
    model = MODEL.model_copy(update={"vocab_size": 300})
    save(tmp_path / "run" / "checkpoints", 10, trained(model), model=model)
    answer = geotrain("export", tmp_path / "run", "--out", tmp_path / "model", "--data", data(tmp_path, 280), "--json")
    assert answer.json == {"directory": str(tmp_path / "model"), "step": 10, "tokenizer": True}
    assert geotrain("generate", tmp_path / "model", "sea", "--max-tokens", 5, "--json").json["prompt"] == "sea"


def data(directory: Path, vocab: int) -> Path:
    (directory / "text").write_text("the sea, the open sea\n" * 9)
    texts = find_texts([Tree(path=directory / "text")], avoid=directory / "data", watch=unwatched)
    build(texts, learn(texts, vocab_size=vocab, watch=unwatched), directory / "data", watch=unwatched)
    return directory / "data"


def unwatched(what: str, done_bytes: int, total_bytes: int | None) -> None: ...


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        pytest.param(["--step", "30"], "step-00000030: stages 1, 2 are missing; bring", id="incomplete"),
        pytest.param(["--step", "40"], "--step is 40 and must be one of those in", id="no-step"),
        pytest.param(["--step", "last"], "--step is 'last' and must be a number or latest", id="word"),
        pytest.param(["--data", "nix"], "nix: is not a data set: it has no tokens.json", id="no-data"),
    ],
)
def test_bad_input_is_one_sentence(geotrain, run: Path, tmp_path: Path, asked: list[str], sentence: str):
    answer = geotrain("export", run, "--out", tmp_path / "model", *asked)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert sentence in answer.err
    assert not (tmp_path / "model").exists()


def test_nothing_to_export_is_one_sentence(geotrain, run: Path, tmp_path: Path):
    assert geotrain("export", tmp_path / "nix", "--out", tmp_path / "model").err == (
        f"error: {tmp_path}/nix/checkpoints: has no checkpoints\n"
    )
    for step in (10, 20):
        shutil.rmtree(run / "checkpoints" / f"step-{step:08}" / "stage-01")
    shutil.rmtree(run / "checkpoints" / "step-00000030")
    answer = geotrain("export", run, "--out", tmp_path / "model")
    assert (answer.exit_code, answer.err.count("\n")) == (2, 1)
    assert "step-00000020: stage 1 is missing" in answer.err


def test_damage_is_one_sentence(geotrain, run: Path, tmp_path: Path):
    newest = run / "checkpoints" / "step-00000020"
    (newest / "stage-02" / "__0_0.distcp").write_bytes(b"")
    answer = geotrain("export", run, "--out", tmp_path / "model")
    assert (answer.exit_code, answer.err.count("\n")) == (2, 1)
    assert "stage-02/__0_0.distcp: is damaged: 0 bytes instead of" in answer.err
    assert not (tmp_path / "model" / "model.safetensors").exists()
    (newest / "stage-02" / "stage.json").write_text("{")
    answer = geotrain("export", run, "--out", tmp_path / "model", "--step", 20)
    assert answer.err == f"error: {newest}/stage-02/stage.json: not valid JSON\n"


def test_a_vocabulary_that_the_model_has_not(geotrain, run: Path, tmp_path: Path):
    answer = geotrain("export", run, "--out", tmp_path / "model", "--data", data(tmp_path, 280))
    assert answer.exit_code == 2 and "and must have at most the model's 37" in answer.err


def test_without_torch_it_says_what_to_install(geotrain, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = geotrain("export", "run", "--out", "model")
    assert (answer.exit_code, answer.err) == (2, "error: export needs torch: pip install 'geotrain[train]'\n")
