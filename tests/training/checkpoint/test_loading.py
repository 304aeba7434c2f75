"""Only what was written is loaded; anything else is a sentence, and the tensors stay as they were."""

import pickle
from pathlib import Path

import pytest
import torch

from geotrain.errors import InputError, RunError
from geotrain.training.checkpoint import DamagedError, available, load, steps
from geotrain.training.checkpoint.writing import fingerprint
from tests.training.checkpoint.states import MODEL, cut, load_step, newest_good, position, same, save, trained, zeros


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("before", "after"), [([3], [1, 1, 1]), ([1, 2], [2, 1]), ([1, 1, 1], [3])], ids=str)
def test_a_checkpoint_is_loaded_with_other_stages(tmp_path, before, after):
    state = trained()
    save(tmp_path, 10, *cut(state, before))
    for part in cut(state, after):
        found = zeros(part)
        assert load_step(tmp_path, 10, found) == position(10)
        assert same(found, part)


def test_a_step_with_another_attempts_stage_is_not_loaded(tmp_path):
    first, second = cut(trained(), [2, 1])
    save(tmp_path, 10, first, second)
    save(tmp_path, 20, first, second)
    save(tmp_path, 20, first, attempt="b", num_stages=2)
    found = newest_good(tmp_path, first | second, report=pytest.fail)
    assert found is not None
    assert found.id.step == 10


@pytest.mark.parametrize("file", ["__0_0.distcp", ".metadata", "stage.json"])
@pytest.mark.parametrize("where", [0, 0.5, -3], ids=["begin", "middle", "end"])
def test_one_flipped_bit_is_found_and_the_older_step_is_used(tmp_path, file, where):
    state = trained()
    save(tmp_path, 10, state)
    save(tmp_path, 20, state)
    path = tmp_path / "step-00000020" / "stage-00" / file
    flip(path, where if where != 0.5 else path.stat().st_size // 2)

    found = zeros(state)
    with pytest.raises(DamagedError, match=rf"step-00000020/stage-00/{file}: ") as caught:
        load_step(tmp_path, 20, found)
    assert "\n" not in str(caught.value)
    assert same(found, zeros(state))

    reports: list[str] = []
    step = newest_good(tmp_path, found, report=reports.append)
    assert reports == [str(caught.value)]
    assert step is not None
    assert load(step, found, model=MODEL) == position(10)
    assert same(found, state)


def test_truncated_and_missing_files_are_told(tmp_path):
    state = trained()
    save(tmp_path, 10, state)
    stage = tmp_path / "step-00000010" / "stage-00"
    data = stage / "__0_0.distcp"
    size = data.stat().st_size
    with data.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DamagedError, match=rf"__0_0.distcp: is damaged: 100 bytes instead of {size}$"):
        load_step(tmp_path, 10, zeros(state))
    data.unlink()
    with pytest.raises(DamagedError, match=r"__0_0.distcp: cannot be read: No such file or directory$"):
        load_step(tmp_path, 10, zeros(state))
    (stage / "stage.json").write_text("{")
    with pytest.raises(DamagedError, match=r"stage.json: not valid JSON$"):
        load_step(tmp_path, 10, zeros(state))
    (stage / "stage.json").unlink()
    with pytest.raises(DamagedError, match=r"stage.json: no such file$"):
        load_step(tmp_path, 10, zeros(state))


def test_a_stage_that_was_moved_is_told(tmp_path):
    save(tmp_path, 10, trained())
    (tmp_path / "step-00000010").rename(tmp_path / "step-00000099")
    assert [step.problems for step in steps(tmp_path)] == [
        [f"{tmp_path}/step-00000099/stage-00: holds stage 0 of step 10"]
    ]


def test_a_checkpoint_of_another_model_names_what_differs(tmp_path):
    state = trained()
    save(tmp_path, 10, state)
    wide = MODEL.model_copy(update={"hidden_size": 64, "head_dim": 16})
    with pytest.raises(
        InputError,
        match=r"stage-00: is a checkpoint of another model: hidden_size is 16 there and 64 here "
        r"\(and 1 more\)$",
    ):
        available(tmp_path, ["another.name"], model=wide, report=pytest.fail)
    with pytest.raises(InputError, match=r"another model: num_hidden_layers is 3 there and 4 here$"):
        load(steps(tmp_path)[0], state, model=MODEL.model_copy(update={"num_hidden_layers": 4}))


def test_what_is_missing_or_has_another_shape_is_told(tmp_path):
    state = trained()
    save(tmp_path, 10, state)
    with pytest.raises(DamagedError, match=r"step-00000010: has no 'optimizer.momentum.a' \(and 1 more\)$"):
        load_step(tmp_path, 10, state | dict.fromkeys(["optimizer.momentum.a", "b"], torch.zeros(1)))
    with pytest.raises(InputError, match=r"'model.norm.weight' has the shape \[16\] there and \[3\] here$"):
        load_step(tmp_path, 10, state | {"model.norm.weight": torch.zeros(3)})


def test_a_run_may_resume_with_longer_sequences_and_in_another_precision(tmp_path):
    state = trained()
    save(tmp_path, 10, state)
    found = {name: tensor.to(torch.float64) for name, tensor in zeros(state).items()}
    load(steps(tmp_path)[0], found, model=MODEL.model_copy(update={"max_position_embeddings": 512}))
    assert same(found, {name: tensor.to(torch.float64) for name, tensor in state.items()})


class Call:
    """A pickle that calls a function when it is read."""

    def __init__(self, made):
        self._made = made

    def __reduce__(self):
        return Path.touch, (self._made,)


@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "behind-torch"])
def test_a_planted_pickle_is_not_run(tmp_path, hidden):
    state = trained()
    save(tmp_path, 10, state)
    [stage] = steps(tmp_path)[0].stages
    metadata = pickle.dumps(Call(tmp_path / "made"))
    if hidden:
        metadata = b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c" + bytes([len("false")]) + b"false\x85R."
    (stage.path / ".metadata").write_bytes(metadata)
    # As whoever planted it would: the manifest knows the file.
    files = {**stage.manifest.files, ".metadata": fingerprint(stage.path / ".metadata")}
    (stage.path / "stage.json").write_text(stage.manifest.model_copy(update={"files": files}).text())
    with pytest.raises(RunError, match=r"stage-00: cannot be read: its \.metadata asks for .*, which no checkpoint"):
        load_step(tmp_path, 10, zeros(state))
    assert not (tmp_path / "made").exists()
