"""Where a run goes on from, and that neither its last checkpoint nor its model is given up for a full disk."""

import io
import json
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from geotrain.errors import GeotrainError
from geotrain.seating import Seating
from geotrain.training.assembly import Groups
from geotrain.training.journal import Journal
from geotrain.training.options import Options
from geotrain.training.saving import Saving
from geotrain.training.trainer import train
from tests.training.alone import train_alone
from tests.training.checkpoint.processes import in_process, in_world
from tests.training.checkpoint.test_saver import limited_room
from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan

pytestmark = pytest.mark.slow


JOB = {"model": MODEL | {"layers": 2, "vocab": VOCAB}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of this package's own sources."""
    return dataset(tmp_path_factory.mktemp("data"))


def go(data: Path, out: Path, steps: int, launch: str | None = None, deadline_s: float = 40.0) -> tuple[int, str]:
    """Exit code, and what a run in one process says; the launch is one of torchrun."""
    if launch is not None:
        os.environ["TORCHELASTIC_RUN_ID"] = launch
    options = Options(dc="east", out=out, data=data, steps=steps, checkpoint_every=1, deadline_s=deadline_s)
    with redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
        try:
            train(plan(["east"], job=JOB, layers=2), options, journal=lambda: Journal(options, quiet=True))
        except GeotrainError as problem:
            return problem.exit_code, str(problem)
    return 0, said.getvalue()


def test_checkpoints_of_which_none_can_be_used_end_the_run_with_a_reason_for_each(data: Path, tmp_path: Path):
    out = tmp_path / "run"
    assert in_process(go, data, out, 2)[1][0] == 0
    second, third = (out / "checkpoints" / f"step-{step:08}" / "stage-00" for step in (2, 3))
    second.joinpath("stage.json").write_text("{")
    _, (code, words) = in_process(go, data, out, 3)
    assert (code, "resuming after step 1 of 3" in words) == (0, True), "an older one that is good is enough"
    third.joinpath("stage.json").write_text("{")
    (weights,) = second.glob("__0_*")
    weights.write_bytes(weights.read_bytes()[:-1])
    written = (out / "log.jsonl").read_text()
    _, (code, words) = in_process(go, data, out, 4)
    assert code == 2 and words.startswith(
        f"{out}/checkpoints: has checkpoints, and none can be used: step 2: {weights}"
    )
    assert f"; step 3: {third}/stage.json: not valid JSON" in words and words.endswith("to begin at step 0")
    assert (out / "log.jsonl").read_text() == written, "no step was trained"


def test_a_data_center_that_has_lost_its_stages_ends_the_run(data: Path, tmp_path: Path):
    outs = {"east": tmp_path / "east", "south": tmp_path / "south"}
    told = {dc: Options(dc=dc, out=out, data=data, steps=1) for dc, out in outs.items()}
    assert [code for _, _, code in train_alone(plan(["east", "south"], job=JOB), told).values()] == [0, 0]
    shutil.rmtree(outs["south"] / "checkpoints")
    for _, words, code in train_alone(plan(["east", "south"], job=JOB), told).values():
        assert code == 2 and "none can be used: step 1: south-0 does not have it" in words


def test_a_launch_begins_again_if_its_first_checkpoint_was_not_finished(data: Path, tmp_path: Path):
    out = tmp_path / "run"
    assert in_process(go, data, out, 1, "launch a")[1][0] == 0
    # As if a second stage had died before it had written its part.
    stage = out / "checkpoints" / "step-00000001" / "stage-00"
    in_process(lose_a_tensor, stage)
    _, (code, words) = in_process(go, data, out, 1, "launch b")
    assert (code, words.count("step 1:"), "has only stage 0 of 2" in words) == (2, 1, True)
    _, (code, words) = in_process(go, data, out, 1, "launch a")
    assert (code, "no checkpoint was finished before; training begins at step 0" in words) == (0, True)


def lose_a_tensor(stage: Path) -> None:
    """Rewrite the manifest of a whole model to that of the first of two stages."""
    from geotrain.training.checkpoint.manifest import FILE, Manifest

    manifest = Manifest.load(stage / FILE)
    kept = {name: tensor for name, tensor in manifest.tensors.items() if "layers.1." not in name}
    (stage / FILE).write_text(manifest.model_copy(update={"tensors": kept, "num_stages": 2}).text())


def fill_up_to_the_end(data: Path, out: Path, full: str) -> tuple[int, str, list[str]]:
    """Train where the disk of one directory is full until the run has said so twice."""
    (out / full).mkdir(parents=True)
    limited_room(out / full)
    ballast, warnings = out / full / "ballast", []
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(65536)):
            pass

    def warn(saving: Saving, words: str) -> None:
        warnings.append(words)
        if len(warnings) == 2:
            ballast.unlink()

    setattr(Saving, "_warn", warn)  # noqa: B010
    code, words = go(data, out, 1)
    return code, words, warnings


@pytest.mark.parametrize("full", ["checkpoints", "model"])
def test_a_disk_that_is_full_at_the_end_is_waited_for(data: Path, tmp_path: Path, full: str):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    out = tmp_path / "run"
    _, (code, words, warnings) = in_process(fill_up_to_the_end, data, out, full)
    assert (code, words) == (0, "")
    assert len(warnings) == 2
    assert warnings[0].startswith(str(out / full)) and "No space left on device; tried again for " in warnings[0]
    if full == "checkpoints":  # The other disk was seen by that process only.
        assert json.loads((out / "model" / "config.json").read_text())["hidden_size"] == 32


def never_room(data: Path, out: Path) -> tuple[int, str]:
    """Train where the disk of the model stays full."""
    (out / "model").mkdir(parents=True)
    limited_room(out / "model")
    with suppress(OSError), (out / "model" / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(65536)):
            pass
    return go(data, out, 1, deadline_s=1.5)


def test_a_model_that_finds_no_room_is_written_when_the_run_is_resumed(data: Path, tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    _, (code, words) = in_process(never_room, data, tmp_path / "run")
    file = tmp_path / "run" / "model" / "config.json"
    assert (code, words) == (1, f"{file}: cannot be written: No space left on device; make room and resume")
    _, (code, words) = in_process(go, data, tmp_path / "run", 1)
    assert (code, "resuming after step 1 of 1" in words, file.exists()) == (0, True, True)


def started(data: Path, out: Path, store: Path) -> tuple[int, str]:
    """A run as a launcher starts it, with a directory in which its processes meet."""
    told = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "lo", "GEOTRAIN_STORE": str(store)}
    os.environ.update(told)
    return go(data, out, 1)


def test_a_process_that_is_started_again_when_all_are_done_does_not_wait_for_those_that_have_left(
    data: Path, tmp_path: Path
):
    out, stores = tmp_path / "run", [tmp_path / "first", tmp_path / "second"]
    for store in stores:
        store.mkdir()
    assert in_process(started, data, out, stores[0])[1] == (0, "")
    # As torchrun would, if one dies at its very end: nothing to do, whoever else there may be.
    assert in_process(started, data, out, stores[0])[1] == (0, "")
    assert in_process(started, data, out, stores[1])[1] == (0, "resuming after step 1 of 1\n"), "another launch looks"


def patience(rank: int, deadline_s: float) -> list[float]:
    """Of the groups that a process of two pipelines makes, in seconds."""
    seating = Seating(plan(["east"], pipelines_per_cell=2))
    groups = Groups.make(seating, seating.seats[rank], torch.device("cpu"), deadline_s=deadline_s)
    gloo = [group._get_backend(torch.device("cpu")) for group in groups.mesh.get_all_groups()]
    return [backend.options._timeout / timedelta(seconds=1) for backend in gloo]


def test_groups_of_a_data_center_wait_no_longer_than_the_deadline(tmp_path: Path):
    (code, waits), _ = in_world(patience, tmp_path, 2, 7.0)
    assert (code, waits) == (0, [7.0, 7.0, 7.0])
