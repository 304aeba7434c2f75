"""Real processes on this machine: they end together, whoever ends first and however."""

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from geotrain.errors import InputError, RunError
from geotrain.training.launch import Loopback, ProcessFailedError, Run
from geotrain.training.launch.launch import check_out
from geotrain.training.launch.logs import last_process
from tests.training.launch.runs import alive, launch, python, until

pytestmark = pytest.mark.slow


def start(tmp_path: Path, do: str, **given) -> Run:
    made = launch(tmp_path / "run", do, **given)
    return Run(made, Loopback(made.seating))


def both_here(tmp_path: Path) -> bool:
    return all((tmp_path / "run" / f"{name}-0.here").exists() for name in ("east", "south"))


def test_a_run_that_ends_well_shows_what_the_first_process_said(tmp_path: Path):
    said: list[str] = []
    with start(tmp_path, "leave") as run:
        run.wait(deadline_s=110, tell=said.append)
    assert "".join(said) == "east-0 is here\n"
    assert (tmp_path / "run" / "logs" / "south-0.log").read_text().endswith("attempt 0\nsouth-0 is here\n")


def test_one_that_fails_takes_the_others_along_and_has_the_last_word(tmp_path: Path):
    with pytest.raises(ProcessFailedError) as failure, start(tmp_path, "fail", who="south-0") as run:
        until(lambda: run.pid("east-0"))
        run.wait(deadline_s=110)
    log = tmp_path / "run" / "logs" / "south-0.log"
    assert str(failure.value) == f"south-0 ended with exit code 3: no luck (log: {log})"
    assert failure.value.exit_code == 3
    assert failure.value.lines == ["south-0 is here", "error: no luck"]
    assert not alive(run.pid("east-0"))


def test_of_several_failures_the_one_that_is_no_consequence_is_told(tmp_path: Path):
    with pytest.raises(ProcessFailedError) as failure, start(tmp_path, "fail", who="east-0") as run:
        until(lambda: (tmp_path / "run" / "south-0.here").exists() and run.pid("east-0"))
        os.kill(run.pid("south-0") or 0, signal.SIGKILL)
        until(lambda: not alive(run.pid("east-0")) and not alive(run.pid("south-0")))
        run.wait(deadline_s=110)
    assert str(failure.value).startswith("south-0 ended by signal 9 (Killed)")


def test_a_killed_process_is_a_failure(tmp_path: Path):
    with pytest.raises(ProcessFailedError) as failure, start(tmp_path, "sleep") as run:
        until(lambda: both_here(tmp_path))
        os.kill(run.pid("east-0") or 0, signal.SIGKILL)
        run.wait(deadline_s=110)
    assert str(failure.value).startswith("east-0 ended by signal 9 (Killed): east-0 is here")
    assert failure.value.exit_code == 128 + signal.SIGKILL


def test_time_that_is_up_ends_all_also_those_that_do_not_want_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("geotrain.training.launch.run.PATIENCE_S", 0.3)
    with pytest.raises(RunError) as error, start(tmp_path, "stubborn") as run:
        until(lambda: both_here(tmp_path))
        run.wait(deadline_s=0.2)
    log = tmp_path / "run" / "logs" / "east-0.log"
    assert str(error.value) == f"the run was not done within 0.2 s; {log} ends: east-0 is here"
    assert not alive(run.pid("east-0")) and not alive(run.pid("south-0"))


def test_one_that_stays_behind_when_the_others_are_done_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("geotrain.training.launch.run.LAST_S", 0.3)
    with pytest.raises(RunError) as error, start(tmp_path, "leave", who="east-0") as run:
        until(lambda: both_here(tmp_path))
        run.wait()
    log = tmp_path / "run" / "logs" / "south-0.log"
    words = f"south-0 still runs 0.3 s after another process has ended well; the log is {log}"
    assert str(error.value) == words and not alive(run.pid("south-0"))


@pytest.mark.parametrize("max_restarts", [0, 1], ids=["workers", "agents"])
def test_nothing_outlives_a_launcher_that_is_killed(tmp_path: Path, max_restarts: int):
    stages = ["east", "south"] if max_restarts == 0 else ["east"]
    script = (
        "from pathlib import Path; from tests.training.launch.runs import launch\n"
        "from geotrain.training.launch import Loopback, Run\n"
        f"made = launch(Path({str(tmp_path / 'run')!r}), 'stubborn', stages={stages}, max_restarts={max_restarts})\n"
        "with Run(made, Loopback(made.seating)) as run: run.wait()"
    )
    with subprocess.Popen(python(script)) as launcher:
        until(lambda: all((tmp_path / "run" / f"{dc}-0.here").exists() for dc in stages))
        launcher.kill()
    logs = list((tmp_path / "run" / "logs").iterdir())
    assert len(logs) == 2
    until(lambda: not any(alive(last_process(log)) for log in logs))


def test_workers_go_with_their_agent(tmp_path: Path):
    with (
        pytest.raises(ProcessFailedError) as failure,
        start(tmp_path, "stubborn", stages=["east"], max_restarts=1) as run,
    ):
        until(lambda: (tmp_path / "run" / "east-0.here").exists())
        os.kill(run.pid("east-agent-0") or 0, signal.SIGKILL)
        run.wait(deadline_s=110)
    assert str(failure.value).startswith("east-agent-0 ended by signal 9")
    until(lambda: not alive(run.pid("east-0")))


def test_bad_input_is_not_tried_again(tmp_path: Path):
    with (
        pytest.raises(ProcessFailedError) as failure,
        start(tmp_path, "refuse", stages=["east"], max_restarts=3) as run,
    ):
        # The agent may begin once more before it is ended; that one would stay, so nothing but the first ends the run.
        run.wait(deadline_s=110)
    assert str(failure.value).startswith("east-0 ended with exit code 2: data: no such directory")
    assert failure.value.exit_code == 2


def test_torchrun_starts_the_processes_of_a_data_center_again(tmp_path: Path):
    run_directory = tmp_path / "run"
    run_directory.mkdir()
    (run_directory / "crash").touch()
    with start(tmp_path, "reduce", stages=["east", "east"], max_restarts=2, insecure=False) as run:
        run.wait(deadline_s=110)
    answers = [json.loads((run_directory / f"{name}.json").read_text()) for name in ("east-0", "east-1")]
    assert [answer["sum"] for answer in answers] == [1.0, 1.0]
    assert not (run_directory / "crash").exists()
    log = (run_directory / "logs" / "east-1.log").read_text()
    assert [line.split()[-1] for line in log.splitlines() if line.startswith("===")] == ["0", "1"]
    assert sorted(path.name for path in (run_directory / "keys").iterdir()) == ["ca", "east-0", "east-1"]


def test_a_second_launch_into_a_directory_is_refused_while_the_first_runs(tmp_path: Path):
    with start(tmp_path, "sleep") as run:
        until(lambda: both_here(tmp_path))
        with pytest.raises(InputError, match=rf"launch.lock: process {os.getpid()} on .* runs into this directory"):
            start(tmp_path, "leave").__enter__()
        assert alive(run.pid("east-0")) and alive(run.pid("south-0"))
    with start(tmp_path, "leave") as run:
        run.wait(deadline_s=110)


def test_of_two_launches_into_a_fresh_directory_one_is_refused_also_when_the_other_is_over(tmp_path: Path):
    def launched(out: Path) -> str:
        check_out(out, resume=False)
        both_look.wait(60)
        made = launch(out, "leave", stages=["east"], resume=False)
        try:
            with Run(made, Loopback(made.seating)) as run:
                run.wait(deadline_s=110)
        except InputError as error:
            return str(error)
        return ""

    both_look = Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        for turn in range(8):
            out = tmp_path / f"run-{turn}"
            first, second = sorted(threads.map(launched, (out, out)))
            assert first == "" and ("runs into this directory" in second or "is not empty; --resume" in second)
            starts = (out / "logs" / "east-0.log").read_text().count("=== process")
            assert starts == 1, "nothing was started for the other"


def test_a_launch_that_finds_a_used_directory_once_it_has_the_lock_is_refused_and_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = launch(tmp_path / "run", "leave", stages=["east"], resume=False)
    looks = iter([lambda *_, **__: None])  # At the first look the directory was empty.
    monkeypatch.setattr("geotrain.training.launch.launch.check_out", lambda *a, **k: next(looks, check_out)(*a, **k))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan").touch()
    with pytest.raises(InputError, match="is not empty; --resume goes on with the run in it"):
        made.lock()
    replace(made, resume=True).lock().release()


def test_a_command_that_does_not_exist_says_so(tmp_path: Path):
    with pytest.raises(ProcessFailedError) as failure, start(tmp_path, "leave", program=("no-such-program",)) as run:
        run.wait(deadline_s=110)
    assert "ended with exit code 1: no-such-program: No such file" in str(failure.value)


def test_a_directory_in_use_is_refused(tmp_path: Path):
    check_out(tmp_path / "new", resume=False)
    check_out(tmp_path, resume=False)
    (tmp_path / "file").touch()
    check_out(tmp_path, resume=True)
    with pytest.raises(InputError, match="is not empty; --resume goes on with the run in it"):
        check_out(tmp_path, resume=False)
    with pytest.raises(InputError, match="is a file, expected a directory"):
        check_out(tmp_path / "file", resume=True)


def test_without_torch_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"training needs torch: pip install 'geotrain\[train\]'"):
        start(tmp_path, "leave").__enter__()
    assert not (tmp_path / "run").exists()
