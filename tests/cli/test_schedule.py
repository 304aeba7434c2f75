import json
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def beside_the_plan(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as a person in that directory names them."""
    monkeypatch.chdir(example)


def test_text_is_what_it_prints(geotrain):
    lines = geotrain("schedule", "plan.yaml").out.splitlines()
    assert lines[0].startswith("# gpt-a (4 layers, 1.22B parameters) in 4 stages over 3 data centers")
    assert "schedule atlas" in lines[0] and lines[1].startswith("# K = 3; ")
    assert lines[-1] == "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3"


def test_a_csv_for_torch_goes_to_a_file(geotrain, example: Path):
    answer = geotrain("schedule", "plan.yaml", "--format", "torch-csv", "--pipeline", 2, "-o", "out/atlas.csv")
    assert (answer.exit_code, answer.out) == (0, "schedule: out/atlas.csv  (torch-csv)\n")
    rows = (example / "out" / "atlas.csv").read_text().splitlines()
    assert len(rows) == 4 and rows[3] == "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3"


def test_another_schedule_than_the_plan_has(geotrain):
    rows = geotrain("schedule", "plan.yaml", "--format", "torch-csv", "--schedule", "zero-bubble").out.splitlines()
    assert rows[3] == "3F0,3I0,3W0,3F1,3I1,3W1,3F2,3I2,3W2,3F3,3I3,3W3"


def test_json_is_json_in_both_spellings(geotrain, example: Path):
    answer = geotrain("schedule", "plan.yaml", "--json")
    assert answer.json.keys() == {
        "schema", "cluster", "model", "schedule", "pipelines_per_cell", "cells", "microbatches", "step_time_s",
        "sharing", "stages", "pipelines",
    }  # fmt: skip
    geotrain("schedule", "plan.yaml", "--format", "json", "--out", "schedule.json")
    assert json.loads((example / "schedule.json").read_text()) == answer.json
    assert answer.json["step_time_s"] == geotrain("simulate", "plan.yaml", "--json").json["step_time_s"]


def test_help_says_what_happens_to_recompute(geotrain):
    assert "It holds no R" in " ".join(geotrain("schedule", "--help").out.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["nix.yaml"], "nix.yaml: no such file", id="no-plan"),
        pytest.param(["plan.yaml", "--format", "xml"], "'xml' is not one of 'torch-csv', 'json', 'text'", id="format"),
        pytest.param(
            ["plan.yaml", "--format", "torch-csv", "--pipeline", "3"],
            "plan.yaml: --pipeline is 3 and must be 0 to 2, as pipelines_per_cell is 3",
            id="pipeline",
        ),
        pytest.param(["plan.yaml", "--pipeline", "0"], "--pipeline goes with --format torch-csv", id="all-of-them"),
        pytest.param(["plan.yaml", "--format", "text", "--json"], "does not go with --format text", id="two-formats"),
        pytest.param(["plan.yaml", "--schedule", "fifo"], "schedule is 'fifo' and must be 'gpipe'", id="schedule"),
        pytest.param(["plan.yaml", "--out", "/dev/null/x"], "/dev/null/x: cannot be written", id="output"),
    ],
)
def test_bad_input_is_one_sentence(geotrain, arguments: list[str], sentence: str):
    answer = geotrain("schedule", *arguments)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert sentence in answer.err
