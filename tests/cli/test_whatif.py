"""`geotrain whatif` as a person runs it: real planner, real processes, real Ctrl-C."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

RTT = "wan.default.rtt=10,40ms"
NODES = "datacenters.south.nodes=0..6:6"


@pytest.fixture(autouse=True)
def beside_the_files(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example)


def start(*arguments: str) -> subprocess.Popen[str]:
    """In a session of its own, as from a terminal of its own: Ctrl-C there reaches all its processes."""
    command = [sys.executable, "-m", "geotrain", "whatif", "cluster.yaml", "job.yaml", *arguments]
    pipe = subprocess.PIPE
    # Who runs in the background of a shell ignores Ctrl-C, and so would the command.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, preexec_fn=heed)


def wait_for_lines(path: Path, number: int) -> None:
    """Until the notebook has them; the test's own timeout is the limit."""
    while not path.exists() or path.read_text().count("\n") < number:
        time.sleep(0.02)


def members(session: int) -> list[int]:
    """Living processes of that session, the latest last."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def wait_until_gone(session: int) -> None:
    """All processes of it; the test's own timeout is the limit."""
    while members(session):
        time.sleep(0.02)


def test_a_grid_is_a_table_a_csv_file_and_a_chart(geotrain, example: Path):
    answer = geotrain(
        "whatif", "cluster.yaml", "job.yaml", "--vary", RTT, "--vary", NODES, "--csv", "a.csv", "--chart", "a.svg"
    )
    lines = answer.out.splitlines()
    assert (answer.exit_code, answer.err) == (0, "")
    assert lines[0].split()[:6] == ["rtt", "south.nodes", "data", "centers", "layout", "schedule"]
    assert [line.split()[:3] for line in lines[2:6]] == [
        ["10", "ms", "0"], ["10", "ms", "6"], ["40", "ms", "0"], ["40", "ms", "6"],
    ]  # fmt: skip
    assert lines[-2:] == ["rows:  a.csv", "chart: a.svg"]
    rows = list(csv.DictReader((example / "a.csv").read_text().splitlines()))
    assert [(row["wan.default.rtt"], row["datacenters.south.nodes"]) for row in rows] == [
        ("0.01", "0"), ("0.01", "6"), ("0.04", "0"), ("0.04", "6"),
    ]  # fmt: skip
    assert ElementTree.parse(example / "a.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_any_number_of_workers_gives_the_same_bytes(geotrain):
    asked = ("whatif", "cluster.yaml", "job.yaml", "--vary", RTT, "--vary", NODES, "--json")
    one, two = geotrain(*asked, "--workers", 1), geotrain(*asked, "--workers", 2)
    assert (one.exit_code, one.err) == (0, "")
    assert one.out == two.out
    rows = one.json["rows"]
    assert rows[1]["tokens_per_s"] >= rows[0]["tokens_per_s"]
    assert {"tokens_per_s", "step_time_s", "cost_per_billion_tokens", "gpus", "wan.default.rtt"} <= rows[0].keys()


def test_what_does_not_fit_is_a_row_with_its_reason(geotrain):
    answer = geotrain(
        "whatif", "cluster.yaml", "job.yaml", "--vary", "job.model.layers=4,4000", "--workers", 1, "--json"
    )
    fits, does_not = answer.json["rows"]
    assert (answer.exit_code, fits["reason"], does_not["tokens_per_s"]) == (0, None, None)
    assert does_not["reason"]


@pytest.mark.parametrize("story", ["add-dc", "lose-dc", "fraction", "halve", "knee"])
def test_every_story_ends_with_a_sentence(geotrain, story: str):
    answer = geotrain("whatif", "cluster.yaml", "job.yaml", "--story", story, "--workers", 1)
    assert (answer.exit_code, answer.err) == (0, "")
    assert answer.out.splitlines()[-1].endswith(".")


def test_ctrl_c_keeps_what_is_done_and_the_next_run_goes_on(example: Path):
    points = ["--vary", "wan.default.rtt=1..1000ms", "--resume", "a.jsonl", "--workers", "2"]
    run = start(*points, "--csv", "a.csv")
    wait_for_lines(example / "a.jsonl", 3)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate()
    done = (example / "a.jsonl").read_text().splitlines()
    assert run.returncode == 130
    assert err == f"{len(done)} of 1000 points are done; run it again to go on from a.jsonl\n"
    assert out.count(" ms ") >= len(done)
    assert len((example / "a.csv").read_text().splitlines()) == len(done) + 1
    wait_until_gone(run.pid)

    fewer = ["--vary", "wan.default.rtt=1..5ms", "--resume", "a.jsonl", "--json"]
    again = start(*fewer)
    rows = json.loads(again.communicate()[0])["rows"]
    assert [row["wan.default.rtt"] for row in rows] == [0.001, 0.002, 0.003, 0.004, 0.005]
    assert (example / "a.jsonl").read_text().splitlines()[: len(done)] == done


def test_a_killed_worker_is_one_sentence_and_what_was_done_is_kept(example: Path):
    run = start("--vary", "wan.default.rtt=1..1000ms", "--resume", "a.jsonl", "--workers", "2")
    wait_for_lines(example / "a.jsonl", 3)
    os.kill(members(run.pid)[-1], signal.SIGKILL)
    out, err = run.communicate()
    done = (example / "a.jsonl").read_text().splitlines()
    assert run.returncode == 1
    assert err.splitlines() == [
        f"{len(done)} of 1000 points are done; run it again to go on from a.jsonl",
        "error: a worker process died: it was killed, or the machine ran out of memory; try fewer --workers",
    ]
    assert out.count(" ms ") >= len(done)
    wait_until_gone(run.pid)


def test_workers_do_not_outlive_a_killed_command(example: Path):
    run = start("--vary", "wan.default.rtt=1..1000ms", "--resume", "a.jsonl", "--workers", "2")
    wait_for_lines(example / "a.jsonl", 3)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    wait_until_gone(run.pid)
    assert (example / "a.jsonl").read_text().count("\n") >= 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "give --vary PATH=VALUES, such as 'wan.default.rtt=10,20,40ms', or --story, one of add-dc, lose-dc, "),
        ("--vary wan.default.rtt=1ms --story knee", "--story knee has points of its own: give it or --vary, not both"),
        ("--story nee", "--story nee: is not a known story: did you mean 'knee'?"),
        ("--vary wan.default.rt=1ms", "--vary wan.default.rt: 'rt' is not a field of wan.default: did you mean 'rtt'?"),
        ("--story knee --goal fun", "Invalid value for '--goal': "),
        ("--story knee --schedule gpip", "--schedule is 'gpip' and must be a schedule: did you mean 'gpipe'?"),
        ("--story knee --on mars", "Invalid value for '--on': "),
        (
            "--story knee --on ray --workers 2",
            "--workers counts local processes; with --on ray the Ray cluster decides",
        ),
        ("--story knee --workers 0", "Invalid value for '--workers': "),
        ("--story knee --resume plan.yaml", "plan.yaml: line 1 was not written by `geotrain whatif --resume`"),
        ("--story knee --csv .", ".: is a directory, expected a file to write"),
    ],
)
def test_what_cannot_be_is_one_sentence(geotrain, arguments: str, complaint: str):
    answer = geotrain("whatif", "cluster.yaml", "job.yaml", *arguments.split())
    assert (answer.exit_code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {complaint}")
    assert answer.err.count("\n") == 1


def test_the_planner_can_be_held_to_one_way_across(geotrain):
    asked = ("whatif", "cluster.yaml", "job.yaml", "--vary", "datacenters.south.nodes=6", "--workers", 1, "--json")
    ways = {across: geotrain(*asked, "--across", across).json["rows"][0] for across in ("any", "pipeline", "data")}
    assert ways["pipeline"]["across"] in ("none", "pipeline")
    assert ways["data"]["across"] in ("none", "data")
    assert ways["any"]["tokens_per_s"] == max(way["tokens_per_s"] for way in ways.values())


def test_a_file_that_is_not_there_is_one_sentence(geotrain):
    answer = geotrain("whatif", "none.yaml", "job.yaml", "--vary", RTT)
    assert (answer.exit_code, answer.err) == (2, "error: none.yaml: no such file\n")


def test_a_field_that_makes_no_difference_is_said(geotrain):
    asked = ("whatif", "cluster.yaml", "job.yaml", "--workers", 1, "--json", "--vary", "wan.default.price_per_gb=0,1")
    answer = geotrain(*asked).json["answer"]
    assert answer == "wan.default.price_per_gb made no difference: the answer is the same for every value."
