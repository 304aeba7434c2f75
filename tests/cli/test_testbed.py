"""`geotrain testbed`, from the outside."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.testbed import Files
from geotrain.testbed.record import started
from tests.testbed.machine import require_namespaces

pytestmark = pytest.mark.slow


CLUSTER = """
name: small
datacenters:
  - {name: east, nodes: 600, gpu: a100-80gb, fabric: {rate: 10 Gbit/s}}
  - {name: south, nodes: 1, gpu: a100-80gb}
wan: {default: {rtt: 10 ms, pair_cap: 1 Gbit/s, tcp_window: 1 MB}}
"""
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


@pytest.fixture
def namespaces() -> None:
    require_namespaces()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture
def testbed(geotrain, namespaces, tmp_path: Path):
    """The command with a state directory of its own, emptied at the end."""

    def run(what: str, *arguments: object):
        return geotrain("testbed", what, "--state", tmp_path / "state", *arguments)

    yield run
    for record in (tmp_path / "state").glob("*.json"):
        run("down", "--name", record.stem)


def execute(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geotrain", "testbed", "exec", "--state", str(state), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_up_exec_status_down(testbed, file: Path, tmp_path: Path):
    state = tmp_path / "state"
    up = testbed("up", file)
    assert (up.exit_code, up.err) == (0, "")
    lines = up.out.splitlines()
    assert lines[:2] == ["east: 4 of 600 nodes, 10.1.0.1 to 10.1.0.4", "south: 1 node, 10.2.0.1"]
    assert lines[-2:] == [
        f"next: geotrain testbed exec --state {state} east -- COMMAND",
        f"then: geotrain testbed down --state {state}",
    ]

    again = testbed("up", file)
    sentence = f"error: the testbed 'default' is up already: `geotrain testbed down --state {state}` removes it\n"
    assert (again.exit_code, again.out, again.err) == (2, "", sentence)

    inside = execute(state, "east", "--node", "1", "--", "sh", "-c", "echo $GEOTRAIN_ADDRESS; exit 7")
    assert (inside.returncode, inside.stdout, inside.stderr) == (7, "10.1.0.2\n", "")
    wrong = execute(state, "east", "--node", "9", "--", "true")
    assert (wrong.returncode, wrong.stderr.startswith("error: east has no node 9 in this testbed")) == (2, True)

    status = testbed("status", "--json").json
    assert (status["state"], status["cluster"], len(status["nodes"])) == ("up", "small", 5)
    assert status["links"][0]["from"] == "east"
    assert status["links"][0]["pair_cap"] == 125e6
    assert "10.1.0.1 to 10.1.0.4" in testbed("status").out

    assert testbed("down").out == "the testbed 'default' is down\n"
    assert started(status["process"]) is None
    assert list(state.iterdir()) == []
    assert testbed("down").out == "no testbed 'default' is up\n"
    gone = testbed("status", "--json")
    assert (gone.exit_code, gone.json) == (1, {"name": "default", "state": "down"})


def test_alone_it_shows_its_help(geotrain):
    answer = geotrain("testbed")
    assert (answer.exit_code, answer.err) == (0, "")
    assert answer.out == geotrain("testbed", "--help").out
    assert "geotrain testbed exec south -- python3 -m http.server 8000" in answer.out


def test_two_live_side_by_side(testbed, file: Path, tmp_path: Path):
    for name in ("one", "two"):
        assert testbed("up", file, "--name", name, "--nodes-per-dc", 1, "--json").json["name"] == name
    testbed("down", "--name", "one")
    assert testbed("status", "--name", "two").exit_code == 0
    assert execute(tmp_path / "state", "--name", "two", "south", "--", "true").returncode == 0


def test_a_killed_keeper_is_one_sentence_and_can_be_cleaned(testbed, file: Path, tmp_path: Path):
    keeper = testbed("up", file, "--json").json["process"]
    os.kill(keeper, signal.SIGKILL)
    while started(keeper) is not None:
        time.sleep(0.01)
    status = testbed("status")
    assert status.exit_code == 1
    assert status.out.startswith("the testbed 'default' is dead; `geotrain testbed down --state ")
    inside = execute(tmp_path / "state", "east", "--", "true")
    assert inside.returncode == 1
    assert inside.stderr.startswith("error: the testbed 'default' is dead, its process ")
    assert testbed("up", file).err.startswith("error: the testbed 'default' has died and left its record behind")
    assert testbed("down").out == "the testbed 'default' is down\n"
    assert testbed("up", file).exit_code == 0


@pytest.mark.parametrize("moment", ["claimed", "launched", "begun", "built"])
def test_an_up_that_is_killed_leaves_nothing_that_down_cannot_clean(testbed, file: Path, tmp_path: Path, moment: str):
    files = Files(tmp_path / "state", "default")
    command = [sys.executable, "-m", "geotrain", "testbed", "up", str(file), "--state", str(files.state)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as up:
        while not has_come(moment, files, up.pid):
            assert up.poll() in (None, 0)
            time.sleep(0.002)
        up.kill()
    assert testbed("down").exit_code == 0
    # Whoever has outlived it may still write.
    while writers(files.log):
        time.sleep(0.01)
    assert list(files.state.iterdir()) == []
    assert testbed("up", file, "--nodes-per-dc", 1).out.startswith("east: 1 of 600 nodes, 10.1.0.1\n")


def has_come(moment: str, files: Files, up: int) -> bool:
    """Whether an `up` is as far as that."""
    if moment == "launched":
        return len(writers(files.log)) > 0
    try:
        record = files.read()
    except InputError:
        return False  # Half written.
    if record is None:
        return False
    return {"claimed": True, "begun": record.keeper != up, "built": bool(record.places)}[moment]


def writers(log: Path) -> list[str]:
    """Processes that have the keeper's log for their errors."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{process}/fd/2").removesuffix(" (deleted)") == str(log):
                found.append(process)
    return found


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["up", "none.yaml"], "none.yaml: no such file", id="file"),
        pytest.param(["exec", "east", "--", "ls"], "no testbed 'default' is up in ", id="exec"),
        pytest.param(["exec", "east"], "Missing argument '-- CMD...'.", id="no-command"),
        pytest.param(["status", "--name", "a/b"], "--name is 'a/b' and must be 1 to 32 letters, ", id="name"),
        pytest.param(["down", "--nmae", "x"], "No such option: --nmae", id="option"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(geotrain, tmp_path: Path, arguments: list[str], sentence: str):
    answer = geotrain("testbed", arguments[0], "--state", tmp_path, *arguments[1:])
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"error: {sentence}")


def test_a_bad_number_of_nodes_is_refused(geotrain, tmp_path: Path, file: Path):
    answer = geotrain("testbed", "up", file, "--state", tmp_path, "--nodes-per-dc", "0")
    assert (answer.exit_code, answer.err) == (2, "error: --nodes-per-dc is 0 and must be at least 1\n")


def test_a_link_to_itself_is_no_place_for_its_state(geotrain, tmp_path: Path, file: Path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    answer = geotrain("testbed", "up", file, "--nodes-per-dc", 1, "--state", loop)
    said = f"error: {loop}: cannot be written: a symbolic link in it leads to itself\n"
    assert (answer.exit_code, answer.err) == (2, said)


def test_no_root_and_no_user_namespaces_is_one_sentence(namespaces, tmp_path: Path, file: Path):
    limits = "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces"
    up = f"{sys.executable} -m geotrain testbed up {file} --state {tmp_path / 'state'}"
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", f"{limits} && {up}"], capture_output=True, text=True, timeout=30
    )
    if "max_net_namespaces" in done.stderr:
        pytest.skip("namespaces cannot be forbidden for a test here")
    assert done.returncode == 1
    assert done.stderr.startswith("error: a testbed needs root, or user namespaces for everybody, and this machine")
    assert list((tmp_path / "state").iterdir()) == []


def test_it_works_without_root(namespaces, file: Path):
    python = python_for_nobody()
    # A device that everybody may open, seen by this command alone: the machine's may be closed to others.
    own_tun = "mount -t tmpfs -o mode=755 none /dev/net && mknod -m 666 /dev/net/tun c 10 200"
    with_tun = ["unshare", "--mount", "sh", "-c", f'{own_tun} && exec "$@"', "sh"]
    opened = subprocess.run([*with_tun, *python, "-c", "open('/dev/net/tun')"], capture_output=True, text=True, cwd="/")
    if opened.returncode:
        pytest.skip(f"a user without rights cannot be given a /dev/net/tun here: {opened.stderr.splitlines()[-1]}")
    # Not in pytest's directory, which is closed to others.
    state = Path(f"/tmp/geotrain-testbed-test-{os.getpid()}")
    copy = Path(f"{state}.yaml")
    copy.write_text(CLUSTER)

    def run(what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*with_tun, *python, "-m", "geotrain", "testbed", what, "--state", str(state), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")

    try:
        up = run("up", str(copy), "--json")
        assert up.stderr == ""
        assert json.loads(up.stdout)["rootless"]
        ask = "import socket; s = socket.socket(); s.settimeout(5); print(s.connect_ex(('10.2.0.1', 1)))"
        inside = run("exec", "east", "--", "python3", "-c", ask)
        assert (inside.stdout, inside.stderr) == ("111\n", "")
        with subprocess.Popen([*python, "-m", "geotrain", "testbed", "exec", "--state", str(state), "east", "--",
                               "sleep", "60"], cwd="/") as guest:  # fmt: skip
            while not json.loads(run("status", "--json").stdout)["processes"]:
                time.sleep(0.1)
            assert run("down").stdout == "the testbed 'default' is down\n"
            assert guest.wait(30) == -signal.SIGTERM
    finally:
        run("down")
        shutil.rmtree(state, ignore_errors=True)
        copy.unlink()


def python_for_nobody() -> list[str]:
    """How a user without rights runs this geotrain; skips where files or tools are closed to that user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming a user without rights takes root and setpriv")
    paths = [str(Path(__file__).parents[2]), *(path for path in sys.path if path.endswith("site-packages"))]
    environment = ["env", "PYTHONDONTWRITEBYTECODE=1", f"PYTHONPATH={':'.join(paths)}"]
    for python in (sys.executable, "/usr/bin/python3"):
        command = [*NOBODY, *environment, python]
        script = "import geotrain.testbed, geotrain.cli"
        if subprocess.run([*command, "-c", script], capture_output=True, timeout=30, cwd="/").returncode == 0:
            return command
    pytest.skip("no Python that a user without rights may run can import geotrain")
