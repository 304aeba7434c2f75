"""Saving while training goes on, with real crashes and a real full disk."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
import torch

from geotrain.errors import RunError
from geotrain.training.checkpoint import saver as saver_module
from geotrain.training.checkpoint import steps
from geotrain.training.checkpoint.writing import write
from tests.training.checkpoint.processes import in_process
from tests.training.checkpoint.states import (
    directories,
    load_step,
    newest_good,
    position,
    same,
    save,
    saver,
    trained,
    zeros,
)

pytestmark = pytest.mark.slow


CLONE_NEWNS = 0x20000


def test_what_changes_after_save_returned_is_not_in_the_checkpoint(tmp_path, monkeypatch):
    state, may_write = trained(), Event()
    as_saved = {name: tensor.detach().clone() for name, tensor in state.items()}

    def write_later(*args, **choices):
        assert may_write.wait(20)
        write(*args, **choices)

    monkeypatch.setattr(saver_module, "write", write_later)
    writer = saver(tmp_path)
    writer.save(state, position(10))
    with torch.no_grad():
        for tensor in state.values():
            tensor.zero_()
    assert directories(tmp_path) == []
    may_write.set()
    writer.wait()
    load_step(tmp_path, 10, state)
    assert same(state, as_saved)


def test_the_last_ones_are_kept(tmp_path):
    state, writer = trained(), saver(tmp_path, keep=2)
    for step in (10, 20, 30, 40):
        writer.save(state, position(step), complete=[done.step for done in writer.saved])
        writer.wait()
    assert [step.step for step in writer.saved] == [10, 20, 30, 40]
    assert directories(tmp_path) == ["step-00000030/stage-00", "step-00000040/stage-00"]


def test_nothing_goes_while_another_data_center_is_behind(tmp_path):
    state, writer = trained(), saver(tmp_path, keep=1)
    for step in (10, 20, 30):
        writer.save(state, position(step), complete=[10])
    writer.wait()
    assert directories(tmp_path, depth=1) == ["step-00000010", "step-00000020", "step-00000030"]


def test_the_same_step_may_be_written_again(tmp_path):
    save(tmp_path, 10, trained())
    again = trained(updates=3)
    save(tmp_path, 10, again, attempt="b")
    found = zeros(again)
    load_step(tmp_path, 10, found)
    assert same(found, again)
    assert directories(tmp_path) == ["step-00000010/stage-00"]


def test_a_save_that_takes_too_long_is_told(tmp_path, monkeypatch):
    may_write = Event()
    monkeypatch.setattr(saver_module, "write", lambda *_, **__: may_write.wait(20))
    writer = saver(tmp_path, deadline_s=0.01)
    writer.save(trained(), position(10))
    with pytest.raises(RunError, match=r"a checkpoint is not written after 0.01 s$"):
        writer.save(trained(), position(20))
    may_write.set()


def die_when(moment: str, directory: Path) -> None:
    """Save until the moment comes, then die as by kill -9."""
    state = trained(updates=3)
    writer = saver(directory)

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event in ("open", "os.rename") and moment in f"{event} {args[0]}":
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    writer.save(state, position(20))
    writer.wait()


@pytest.mark.parametrize("moment", [".distcp", ".metadata.tmp", "stage.json", "os.rename"])
def test_a_writer_killed_in_the_middle_leaves_the_older_step_and_no_rubbish(tmp_path, moment):
    state = trained()
    save(tmp_path, 10, state)
    assert in_process(die_when, moment, tmp_path) == (-signal.SIGKILL, None)

    [leftover] = tmp_path.glob("step-00000020/*")
    assert leftover.name.startswith("stage-00.tmp-")
    found = zeros(state)
    step = newest_good(tmp_path, found, report=pytest.fail)
    assert step is not None
    assert step.id.step == 10
    writer = saver(tmp_path)
    assert directories(tmp_path) == ["step-00000010/stage-00"]
    assert directories(tmp_path, depth=1) == ["step-00000010"]
    writer.save(state, position(20))
    writer.wait()
    assert [step.complete for step in steps(tmp_path)] == [True, True]


def fill_the_disk(directory: Path) -> tuple[str, bool, list[str], list[str]]:
    """Save twice where there is room for less than two; make room, and save again."""
    limited_room(directory)
    state = {"model.norm.weight": torch.ones(200_000), "b": torch.ones(200_000)}
    writer = saver(directory)
    writer.save(dict(list(state.items())[:1]), position(10))
    writer.save(state, position(20))
    try:
        writer.wait()
    except RunError as error:
        sentence = str(error).replace(str(directory), "")
    untouched = all(tensor.eq(1).all() for tensor in state.values())
    after = directories(directory)
    writer.save({"b": torch.ones(10)}, position(30))
    writer.wait()
    return sentence, bool(untouched), after, directories(directory)


def limited_room(directory: Path) -> None:
    """A disk of 2 MB that only this process sees, or without root files of at most 1 MB."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", directory], check=True)
    else:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def test_a_full_disk_is_a_sentence_and_training_goes_on(tmp_path):
    code, answer = in_process(fill_the_disk, tmp_path)
    assert code == 0
    sentence, untouched, after, later = answer
    assert sentence in (
        "/step-00000020/stage-00: the checkpoint was not written: No space left on device",
        "/step-00000020/stage-00: the checkpoint was not written: File too large",
    )
    assert untouched
    assert after == ["step-00000010/stage-00"]
    assert later == ["step-00000010/stage-00", "step-00000030/stage-00"]
