import os
import subprocess
import sys
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.testbed import Files, Record, draw, take_down
from geotrain.testbed.processes import running_inside
from geotrain.testbed.record import MARK, Place, own_start, started
from tests.testbed.clusters import cluster


def record(**changes: object) -> Record:
    facts: dict[str, object] = {
        "name": "one",
        "identity": "0123",
        "keeper": os.getpid(),
        "keeper_started": own_start(),
        "created": 0.0,
        "blueprint": draw(cluster()),
    }
    return Record.model_validate(facts | changes)


def test_a_name_is_claimed_once(tmp_path: Path):
    files = Files(tmp_path / "state", "one")
    assert files.read() is None
    files.claim(record())
    assert files.read() == record()
    with pytest.raises(InputError, match="the testbed 'one' is up already: `geotrain testbed down --name one --state "):
        files.claim(record())
    files.write(record(keeper_started=1))
    with pytest.raises(InputError, match="the testbed 'one' has died and left its record behind: "):
        files.claim(record())
    files.remove()
    assert list(files.state.iterdir()) == []


def test_a_process_of_the_same_number_is_not_the_keeper():
    assert (record().state, record(keeper_started=own_start() - 1).state) == ("being built", "dead")


def test_a_process_that_only_waits_to_be_reaped_has_ended():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert started(child.pid) is None


def test_a_stranger_in_a_namespace_of_the_same_number_is_left_alone(tmp_path: Path):
    """The kernel gives the numbers of dead namespaces to new ones: here our own stands for a container's."""
    place = Place(dc="east", node=0, file=3, inode=os.stat("/proc/self/ns/net").st_ino)
    dead = record(keeper_started=1, places=(place,))
    stranger = subprocess.Popen(["sleep", "60"])
    # It speaks once its environment is in place, which is a moment after Popen returns.
    speaking = ["sh", "-c", "echo here; exec sleep 60"]
    guest = subprocess.Popen(speaking, env={**os.environ, MARK: dead.identity}, stdout=subprocess.PIPE)
    try:
        assert guest.stdout is not None and guest.stdout.readline() == b"here\n"
        assert running_inside(dead) == [guest.pid]
        files = Files(tmp_path, "one")
        files.claim(dead)
        assert take_down(files) == dead
        assert guest.wait(30) == -15
        assert stranger.poll() is None
        assert take_down(files) is None
    finally:
        for process in (stranger, guest):
            process.kill()
            process.communicate()


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 33, "-a"])
def test_names_are_safe_in_file_names(tmp_path: Path, name: str):
    with pytest.raises(InputError, match="and must be 1 to 32 letters, digits, '-' or '_'"):
        Files(tmp_path, name)


def test_files_that_are_something_else_are_named(tmp_path: Path):
    (tmp_path / "one.json").write_text("{}")
    with pytest.raises(InputError, match=r"one.json: is not the record of a testbed; remove the file"):
        Files(tmp_path, "one").read()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--state is '.*/file' and must be a directory"):
        Files(tmp_path / "file", "one").read()
    with pytest.raises(InputError, match=r"--state is '.*/file' and must be a directory"):
        Files(tmp_path / "file", "one").claim(record())
