"""Only what was written is loaded; anything else is a sentence, and the tensors stay as they were."""

import io
import os
import pickle
import tracemalloc
from pathlib import Path

import pytest
import torch

from geotrain.errors import InputError
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


def plant(directory: Path, **files: bytes) -> None:
    """Put other content into files of the only stage, as an attacker would: the manifest knows it."""
    [stage] = steps(directory)[0].stages
    names = {"metadata": ".metadata", "data": "__0_0.distcp"}
    for name, content in files.items():
        (stage.path / names[name]).write_bytes(content)
    records = {name: fingerprint(stage.path / name) for name in stage.manifest.files}
    (stage.path / "stage.json").write_text(stage.manifest.model_copy(update={"files": records}).text())


@pytest.fixture
def saved(tmp_path):
    """A directory with the checkpoint of one step."""
    save(tmp_path, 10, trained())
    return tmp_path


def refusal(directory: Path) -> str:
    """What loading says, in one sentence that ends with what to do; no tensor is touched."""
    found = zeros(trained())
    with pytest.raises(DamagedError) as caught:
        load_step(directory, 10, found)
    assert same(found, zeros(found))
    sentence, _, advice = str(caught.value).replace(f"{directory}/", "").partition("; ")
    assert advice == "remove step-00000010 to go on from an older checkpoint"
    return sentence.removeprefix("step-00000010/stage-00")


@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "behind-torch"])
def test_a_planted_pickle_is_not_run(saved, hidden):
    metadata = pickle.dumps(Call(saved / "made"))
    if hidden:
        metadata = b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c" + bytes([len("false")]) + b"false\x85R."
    plant(saved, metadata=metadata)
    asked = "torch.os.system" if hidden else "pathlib.Path.touch"
    assert refusal(saved) in (
        f"/.metadata: cannot be read: it asks for {asked}, which no checkpoint of ours needs",
        # How a function is named differs between versions of Python.
        "/.metadata: cannot be read: it asks for builtins.getattr, which no checkpoint of ours needs",
    )
    assert not (saved / "made").exists()


def nested(levels: int) -> bytes:
    """A mapping with a key of tuples within tuples, each twice in the next: its hash takes 2 ** levels steps."""
    return b"\x80\x04}(K\x01" + b"q\x00h\x00\x86" * levels + b"Nu."


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"\x80\x02Nr\xff\xff\xff\x3f.", "it is no metadata of torch", id="a memo of 11 GB"),
        pytest.param(
            b"\x80\x04\x96" + (1 << 40).to_bytes(8, "little") + b"a.", "it is no metadata of torch", id="1 TiB"
        ),
        pytest.param(b"\x80\x04\x95" + (1 << 40).to_bytes(8, "little") + b"a.", None, id="a frame of 1 TiB"),
        pytest.param(b"\x80\x02" + b"(" * 1_000_000 + b".", None, id="marks"),
        pytest.param(nested(60), "it does what no checkpoint of ours does", id="a hash without end"),
        pytest.param(pickle.dumps(5), "it is no metadata of torch", id="a number"),
        pytest.param(b"", "it is no metadata of torch", id="nothing"),
        pytest.param(
            b"\x80\x02cpathlib\nPosixPath\n(N}X\x04\x00\x00\x00openctorch\nSize\nstb.",
            "it does what no checkpoint of ours does",
            id="changes a class",
        ),
    ],
)
def test_metadata_that_is_none_is_a_sentence_and_takes_no_memory(saved, content, sentence):
    plant(saved, metadata=content)
    known = Path.open
    tracemalloc.start()
    try:
        said = refusal(saved)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert said.startswith("/.metadata: cannot be read: ")
    assert sentence is None or said == f"/.metadata: cannot be read: {sentence}"
    assert Path.open is known


def metadata_with(stage: Path, **changes) -> bytes:
    """The stage's own metadata, in which every tensor lies elsewhere."""
    metadata = pickle.loads((stage / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        vars(info).update(changes)
    return pickle.dumps(metadata)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"relative_path": "/fifo"}, "it names the file '/fifo', which is none of this stage's"),
        ({"relative_path": "../x"}, "it names the file '../x', which is none of this stage's"),
        ({"relative_path": 5}, "it names the file '5', which is none of this stage's"),
        ({"offset": 1 << 40}, "it names a part of __0_0.distcp that is not there"),
        ({"offset": -1}, "it names a part of __0_0.distcp that is not there"),
        ({"length": -1}, "it names a part of __0_0.distcp that geotrain does not write"),
        ({"transform_descriptors": ["zstd"]}, "it names a part of __0_0.distcp that geotrain does not write"),
    ],
    ids=str,
)
def test_metadata_speaks_of_the_stages_own_files_only(saved, changes, sentence):
    stage = saved / "step-00000010" / "stage-00"
    plant(saved, metadata=metadata_with(stage, **changes))
    assert refusal(saved) == f"/.metadata: cannot be read: {sentence}"


def test_a_planted_pickle_among_the_tensors_is_not_run_and_torchs_advice_not_passed_on(saved):
    stage = saved / "step-00000010" / "stage-00"
    planted = io.BytesIO()
    torch.save(Call(saved / "made"), planted)
    content = (stage / "__0_0.distcp").read_bytes()
    elsewhere = metadata_with(stage, offset=len(content), length=len(planted.getvalue()))
    plant(saved, metadata=elsewhere, data=content + planted.getvalue())
    assert refusal(saved) == ": cannot be read: its files do not hold the tensors that they should"
    assert not (saved / "made").exists()


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "stage.json"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_a_link_in_the_place_of_a_file_is_refused_at_once(saved, name, kind):
    path = saved / "step-00000010" / "stage-00" / name
    if kind == "link":
        path.rename(saved / "elsewhere")
        path.symlink_to(saved / "elsewhere")
    else:
        path.unlink()
        os.mkfifo(path)
    what = "a symbolic link" if kind == "link" else "a pipe or a device"
    with pytest.raises(DamagedError, match=rf"{name}: cannot be read: it is {what}, not a regular file$"):
        load_step(saved, 10, zeros(trained()))


def test_a_manifest_names_files_beside_it_only(saved):
    [stage] = steps(saved)[0].stages
    files = {**stage.manifest.files, "../../secret": stage.manifest.files[".metadata"]}
    (stage.path / "stage.json").write_text(stage.manifest.model_copy(update={"files": files}).text())
    with pytest.raises(DamagedError, match=r"files: '\.\./\.\./secret' must be the name of a file beside it$"):
        load_step(saved, 10, zeros(trained()))
