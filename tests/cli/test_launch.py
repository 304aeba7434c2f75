"""`geotrain launch`, from the outside."""

import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from geotrain.cli import build_app
from geotrain.training.launch import Launch, Run
from geotrain.training.launch.logs import last_process
from tests.testbed.machine import require_namespaces
from tests.training.launch.runs import WORKER, alive, python, until
from tests.training.plans import plan

PLACES = {
    "local": [],
    "testbed": [],
    "slurm": ["--control", "east-1:29400"],
    "kubernetes": ["--control", "e.example.com:29400", "--image", "geotrain:1"],
}
FILES = {
    "slurm": {"east.sbatch", "south.sbatch", "submit.sh", "keys.sh", "plan.yaml"},
    "kubernetes": {"east.yaml", "south.yaml", "apply.sh", "keys.sh"},
}


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(plan(["east", "south"], pipelines_per_cell=2, gpus_per_node=2).dump()))
    return path


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `geotrain train`."""
    defaults = Launch.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "program", (sys.executable, WORKER))


@pytest.mark.parametrize("on", PLACES)
def test_a_dry_run_says_what_would_run_where_and_does_nothing(geotrain, plan_file: Path, stand_in, on: str):
    answer = geotrain("launch", plan_file, "--on", on, "--out", "run", "--dry-run", *PLACES[on], "--json").json
    assert answer["on"] == on and answer["dry_run"]
    seats = [seat for process in answer["processes"] for seat in process["seats"]]
    assert [(seat["name"], seat["stage"], seat["pipeline"]) for seat in seats] == [
        ("east-0", 0, 0),
        ("east-1", 0, 1),
        ("south-0", 1, 0),
        ("south-1", 1, 1),
    ]
    assert {Path(path).name for path in answer["files"]} == FILES.get(on, set())
    text = geotrain("launch", plan_file, "--on", on, "--out", "run", "--dry-run", *PLACES[on]).out
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("east,", "  east-", "  $"))] == [
        *("east,", "east-0", "east-1", "$", "$"),
    ]
    assert [path.name for path in plan_file.parent.iterdir()] == ["plan.yaml"]


@pytest.mark.parametrize("on", PLACES)
def test_train_takes_the_options_that_its_processes_get(
    geotrain, plan_file: Path, monkeypatch: pytest.MonkeyPatch, on: str
):
    # There is no data at this place.
    monkeypatch.setattr(Launch, "check", lambda launch: None)
    options = ["--data", "/data", "--dry-run", *PLACES[on], "--json", "--", "--steps", 7, "--no-resume"]
    answer = geotrain("launch", plan_file, "--on", on, "--out", "run", *options).json
    command = answer["processes"][0]["command"]
    given = command[command.index("train") + 1 :]
    train = typer.main.get_command(build_app()).commands["train"]  # type: ignore[attr-defined]
    taken = train.make_context("train", given).params
    assert (taken["dc"], taken["steps"], taken["resume"]) == ("east", 7, False)
    assert taken["data"] == Path("$DATA" if on == "slurm" else "/data")


def test_a_local_run_shows_progress_and_then_where_it_is(geotrain, plan_file: Path, stand_in):
    start = ["launch", plan_file, "--on", "local", "--out", "run", "--max-restarts", 0]
    answer = geotrain(*start, "--insecure", "--", "--do", "leave")
    assert (answer.exit_code, answer.err) == (0, "east-0 is here\n")
    assert answer.out.startswith("done in ") and answer.out.endswith(": run\n")
    assert geotrain(*start, "--", "--do", "leave").err == (
        "error: run: is not empty; --resume goes on with the run in it, or name another directory\n"
    )
    again = geotrain(*start, "--resume", "--json", "--", "--do", "leave")
    assert again.json["logs"] == "run/logs" and again.json["elapsed_s"] > 0
    assert {path.name for path in Path("run/keys").iterdir()} == {"ca", "east-0", "east-1", "south-0", "south-1"}


def test_a_testbed_run(geotrain, plan_file: Path, stand_in):
    require_namespaces()
    start = ["launch", plan_file, "--on", "testbed", "--out", "run", "--max-restarts", 0, "--insecure"]
    assert geotrain(*start, "--", "--do", "leave").err == "east-0 is here\n"


def test_the_exit_code_is_that_of_the_process_that_failed(geotrain, plan_file: Path, stand_in):
    start = ["launch", plan_file, "--on", "local", "--out", "run", "--max-restarts", 0, "--insecure"]
    answer = geotrain(*start, "--", "--do", "fail", "--who", "south-1")
    assert (answer.exit_code, answer.out) == (3, "")
    assert answer.err.splitlines()[-3:] == [
        "south-1 is here",
        "error: no luck",
        "error: south-1 ended with exit code 3: no luck (log: run/logs/south-1.log)",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_everything(plan_file: Path, number: signal.Signals, code: int):
    start = ["launch", str(plan_file), "--on", "local", "--out", "run", "--max-restarts", "0", "--insecure"]
    script = (
        "from geotrain.cli import main; from geotrain.training.launch import Launch\n"
        f"Launch.__init__.__kwdefaults__['program'] = (sys.executable, {WORKER!r})\n"
        f"sys.argv = ['geotrain', *{[*start, '--', '--do', 'sleep']}]; main()"
    )
    # Who runs in the background of a shell, or under nohup, ignores some of them, and so would the launcher.
    heed = partial(signal.signal, number, signal.SIG_DFL)
    with subprocess.Popen(python(script), stderr=subprocess.PIPE, text=True, preexec_fn=heed) as launcher:
        until(lambda: len(list(plan_file.parent.glob("run/*.here"))) == 4)
        os.kill(launcher.pid, number)
        assert launcher.wait(60) == code
        assert launcher.stderr is not None
        said = launcher.stderr.read().removeprefix("east-0 is here\n")
    again = f"geotrain launch {plan_file} --on local --out run --max-restarts 0 --insecure --resume -- --do sleep"
    assert said == f"ended: no step is saved yet; to go on: {again}\n"
    logs = list(Path("run/logs").iterdir())
    assert len(logs) == 4 and not any(alive(last_process(log)) for log in logs)


def test_an_interrupted_run_says_which_step_is_saved_and_how_to_go_on(
    geotrain, plan_file: Path, stand_in, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(run: Run, **_: object) -> None:
        for stage in ("10/stage-00", "10/stage-01", "20/stage-00", "20/stage-01.tmp-1"):
            Path(f"run/checkpoints/step-000000{stage}").mkdir(parents=True, exist_ok=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "wait", interrupt)
    start = ["launch", "plan.yaml", "--on", "local", "--out", "run", "--insecure"]
    for words in (start, [*start, "--resume"]):
        answer = geotrain(*words, "--", "--do", "sleep")
        assert (answer.exit_code, answer.out) == (130, "")
        assert answer.err == (
            "ended: saved up to step 10 in run/checkpoints; to go on: "
            "geotrain launch plan.yaml --on local --out run --insecure --resume -- --do sleep\n"
        )


@pytest.mark.parametrize("word", ["--resume", "--data=data", "--dry-run"])
def test_an_option_of_launch_after_the_dashes_is_refused(geotrain, plan_file: Path, word: str):
    answer = geotrain("launch", plan_file, "--on", "local", "--out", "run", "--", "--steps", "5", word)
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err == (f"error: {word} stands after --, where options of `geotrain train` are: put it before --\n")


@pytest.mark.parametrize("on", FILES)
def test_scripts_are_written_and_the_next_step_is_named(geotrain, plan_file: Path, on: str):
    answer = geotrain("launch", plan_file, "--on", on, "--out", "run", *PLACES[on])
    assert answer.exit_code == 0
    assert {path.name for path in Path("run", on).iterdir()} == FILES[on]
    last = {"slurm": "submit.sh", "kubernetes": "apply.sh"}[on]
    assert answer.out.splitlines()[-1] == f"next: read them, then run/{on}/keys.sh, then run/{on}/{last}"
    assert os.access(Path("run", on, last), os.X_OK)
    written = geotrain("launch", plan_file, "--on", on, "--out", "other", "--insecure", *PLACES[on], "--json").json
    assert {Path(path).name for path in written["files"]} == FILES[on] - {"keys.sh"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param("missing.yaml --on local", "missing.yaml: no such file", id="plan"),
        pytest.param(
            "plan.yaml --on local --control a:1", "--control is 'a:1' and is only for slurm and", id="control"
        ),
        pytest.param("plan.yaml --on slurm --image a", "--image is 'a' and is only for kubernetes", id="image"),
        pytest.param("plan.yaml --on slurm", "--control HOST:PORT is missing: where south can reach", id="address"),
        pytest.param("plan.yaml --on local --max-restarts -1", "--max-restarts is -1 and must be", id="restarts"),
        pytest.param("plan.yaml --on moon", "Invalid value for '--on'", id="where"),
    ],
)
def test_bad_input_is_one_sentence(geotrain, plan_file: Path, arguments: str, sentence: str):
    answer = geotrain("launch", *shlex.split(arguments), "--out", "run")
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"error: {sentence}")
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param("--on local --data nothing", "nothing: is not a data set: it has no tokens.json", id="no tokens"),
        pytest.param(
            "--on local --data nothing --dry-run", "nothing: is not a data set: it has no tokens.json", id="dry run"
        ),
        pytest.param("--on testbed -- --stepz 5", "No such option: --stepz", id="option"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_and_starts_nothing(
    geotrain, plan_file: Path, monkeypatch: pytest.MonkeyPatch, options: str, sentence: str
):
    def never(*_: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr("geotrain.training.launch.Run.__enter__", never)
    answer = geotrain("launch", plan_file, "--out", "run", *shlex.split(options))
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"error: {sentence}")
    assert [path.name for path in plan_file.parent.iterdir()] == ["plan.yaml"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_keys_of_another_job_are_refused_before_anything_is_started(geotrain, plan_file: Path, stand_in, dry_run: bool):
    assert geotrain("keys", "run/keys", "--job", "other", "--nodes", "east-0").exit_code == 0
    answer = geotrain("launch", plan_file, "--on", "local", "--out", "run", "--resume", *["--dry-run"] * dry_run)
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err == ("error: run/keys/ca: was made for job 'other', not 'training'; take another directory\n")
    assert [path.name for path in Path("run").iterdir()] == ["keys"]


def test_a_process_that_refuses_later_says_so_once(geotrain, plan_file: Path, stand_in):
    start = ["launch", plan_file, "--on", "local", "--out", "run", "--max-restarts", 0, "--insecure"]
    answer = geotrain(*start, "--", "--do", "refuse", "--who", "south-1")
    assert (answer.exit_code, answer.err.count("no such directory")) == (2, 1)


def test_a_machine_without_namespaces_says_so(geotrain, plan_file: Path, stand_in, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(plan_file.parent))
    answer = geotrain("launch", plan_file, "--on", "testbed", "--out", "run")
    assert (answer.exit_code, answer.err.count("\n")) == (1, 1)
    assert answer.err.startswith("error: the command 'ip' is missing")
    assert not Path("run").exists()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("on", PLACES)
@pytest.mark.parametrize(
    ("choices", "said"),
    [
        pytest.param({"stages": ["east"], "replicas": [{"dc": "south", "cells": 1}]}, "has replicas", id="replicas"),
        pytest.param({"job": {"recompute": "layerwise"}}, "recompute is 'layerwise'", id="recompute"),
    ],
)
def test_what_cannot_be_trained_is_refused_everywhere(
    geotrain, plan_file: Path, on: str, choices: dict[str, Any], said: str, dry_run: bool
):
    plan_file.write_text(yaml.safe_dump(plan(**choices).dump()))
    answer = geotrain("launch", plan_file, "--on", on, "--out", "run", *PLACES[on], *["--dry-run"] * dry_run)
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {plan_file}: ") and said in answer.err and answer.err.count("\n") == 1
    assert [path.name for path in plan_file.parent.iterdir()] == ["plan.yaml"]


@pytest.mark.parametrize("words", [["--compute", "emulated"], ["--compute=emulated"]])
def test_emulated_compute_runs_any_model(geotrain, plan_file: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]):
    monkeypatch.setattr(Launch, "check", lambda launch: None)
    plan_file.write_text(yaml.safe_dump(plan(job={"precision": "fp16"}).dump()))
    start = ["launch", plan_file, "--on", "local", "--out", "run", "--dry-run"]
    assert geotrain(*start).exit_code == 2
    assert geotrain(*start, "--", *words).exit_code == 0
