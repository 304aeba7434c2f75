"""Results are kept, and a run that was ended goes on where it was."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geotrain.errors import RunError
from geotrain.plan import Plan
from geotrain.reproduction import experiment, play, runner
from geotrain.reproduction.kinds import KINDS
from geotrain.reproduction.schedules import Step
from geotrain.reproduction.settings import gpt_a

NAME = "bandwidth"


def outcome(out: Path, name: str = NAME, *, fresh: bool = False):
    return play(name, out, quick=True, fresh=fresh)


def test_what_was_found_is_kept_and_files_are_there_for_the_commands(tmp_path):
    first, second, third = outcome(tmp_path), outcome(tmp_path), outcome(tmp_path, fresh=True)
    assert [one.kept for one in (first, second, third)] == [False, True, False]
    assert first.findings == second.findings == third.findings
    for finding in first.findings:
        for source in finding.sources:
            Plan.load(Path(source.command.split()[2]))


def test_a_quick_result_is_not_a_full_one(tmp_path):
    outcome(tmp_path)
    assert not play(NAME, tmp_path, quick=False, fresh=False).kept


def test_another_experiment_file_is_another_question(tmp_path, monkeypatch):
    files = shutil.copytree(experiment.EXPERIMENTS, tmp_path / "experiments")
    monkeypatch.setattr(experiment, "EXPERIMENTS", files)
    before = outcome(tmp_path / "out")
    path = files / f"{NAME}.yaml"
    path.write_text(path.read_text().replace("rtts_ms: [10, 20, 30, 40]", "rtts_ms: [10]"))
    after = outcome(tmp_path / "out")
    assert not after.kept
    assert len(after.findings) < len(before.findings)
    assert sorted({one.name for one in (tmp_path / "out" / "plans" / NAME).iterdir()}) == [
        "rtt-ms-10-many.yaml", "rtt-ms-10-one.yaml",
    ]  # fmt: skip


def test_other_code_finds_again(tmp_path, monkeypatch):
    outcome(tmp_path)
    monkeypatch.setattr(runner, "_code", lambda: "other")
    assert not outcome(tmp_path).kept


@pytest.mark.parametrize(
    ("file", "same"),
    [
        pytest.param("demo/live.py", False, id="a command that an experiment runs"),
        pytest.param("prefill/published.csv", False, id="data"),
        pytest.param("examples/live/plan.yaml", False, id="an example"),
        pytest.param("cli/__pycache__/main.pyc", True, id="compiled"),
        pytest.param("experiments/bandwidth.yaml", True, id="an experiment, which has a key of its own"),
    ],
)
def test_the_code_is_every_file_that_can_decide(tmp_path, file, same):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text("before")
    before = runner._digest(tmp_path)
    path.write_text("after")
    assert (runner._digest(tmp_path) == before) is same


def test_two_files_of_one_name_are_a_mistake_of_ours(tmp_path, monkeypatch):
    def twice(**_):
        for rtt_ms in (10, 20):
            step = Step.of(gpt_a("gpipe", 1, "spatial", rtt_ms=rtt_ms), schedule="gpipe")
            yield from step.figures()

    monkeypatch.setitem(KINDS, "bandwidth", twice)
    with pytest.raises(AssertionError, match=r"gpipe.yaml is two different files"):
        outcome(tmp_path)


def test_a_torn_result_is_found_again(tmp_path):
    outcome(tmp_path)
    (tmp_path / "results" / f"{NAME}.json").write_text('{"key": ')
    assert not outcome(tmp_path).kept


def test_what_could_not_be_measured_is_said_and_tried_again(tmp_path, monkeypatch):
    def fails(**_):
        raise RunError("no testbed here")
        yield

    monkeypatch.setitem(KINDS, "bandwidth", fails)
    failed = outcome(tmp_path)
    assert (failed.missing, {verdict.word for verdict in failed.verdicts}) == ("no testbed here", {"not measured"})
    monkeypatch.undo()
    assert outcome(tmp_path).missing == ""


@pytest.mark.timeout(180)
def test_after_a_kill_what_was_done_is_not_done_again(tmp_path):
    names = ["bandwidth", "parallelism", "auto"]
    only = [word for name in names for word in ("--only", name)]
    script = (
        "import sys, time; from geotrain.cli import main; from geotrain.reproduction import runner\n"
        "from geotrain.reproduction.kinds import KINDS\n"
        # As it was when this process looked: a file of the package that was edited since would make it other code.
        f"runner._code = lambda: {runner._code()!r}\n"
        "KINDS['grid'] = lambda **_: time.sleep(1000)  # That of the last experiment: it is never done.\n"
        f"sys.argv = ['geotrain', 'reproduce', '--quick', '--out', {str(tmp_path)!r}, *{only}]; main()"
    )
    done, said = tmp_path / "results" / "parallelism.json", tmp_path / "said"
    with said.open("w") as file, subprocess.Popen([sys.executable, "-c", script], stdout=file, stderr=file) as process:
        while not done.exists():
            assert process.poll() is None, said.read_text()
            time.sleep(0.05)
        process.kill()

    assert [(tmp_path / "results" / f"{name}.json").exists() for name in names] == [True, True, False]
    assert [outcome(tmp_path, name).kept for name in names[:2]] == [True, True]
    assert json.loads(done.read_text())["findings"]
