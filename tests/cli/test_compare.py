import subprocess
import sys
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from geotrain.plan import ScheduleName
from tests.editing import replace


@pytest.fixture(autouse=True)
def beside_the_plan(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as a person in that directory names them."""
    monkeypatch.chdir(example)


def test_the_command_prints_the_rows_best_first_and_what_cannot_run(example: Path):
    command = [sys.executable, "-m", "geotrain", "compare", "plan.yaml", "--chart", "compare.svg"]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert lines[0].split() == ["schedule", "conn", "sharing", "step", "busy", "x", "bound", "speedup"]
    assert lines[2].split()[:3] == ["auto", "18", "temporal"]
    assert "Cannot run" in lines
    assert lines[-1] == "chart: compare.svg"
    assert ElementTree.parse(example / "compare.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_json_rows_have_the_names_and_types_of_the_contract_best_first(geotrain):
    answer = geotrain("compare", "plan.yaml", "--json")
    rows, infeasible = answer.json["rows"], answer.json["infeasible"]
    contract = {
        "schedule": str,
        "connections": int,
        "sharing": str,
        "step_time_s": float,
        "gpu_utilization": float,
        "step_over_bound": float,
    }
    assert (answer.exit_code, answer.err) == (0, "")
    for row in rows:
        assert {name: type(row[name]) for name in contract} == contract
        assert row["step_over_bound"] >= 1
        assert 0 < row["gpu_utilization"] <= 1
    times = [row["step_time_s"] for row in rows]
    assert times == sorted(times)
    assert rows[-1]["speedup"] == 1

    tried = [(entry["schedule"], entry["connections"], entry["sharing"]) for entry in rows + infeasible]
    assert sorted(tried) == sorted(
        (schedule, connections, sharing)
        for schedule in get_args(ScheduleName)
        for connections in (1, 18)
        for sharing in ("spatial", "temporal")
    )
    assert {(entry["schedule"], entry["reason"]) for entry in infeasible} == {
        ("interleaved", "stages[0].layers is 1 and must be a multiple of interleave, 2")
    }


def test_the_plans_own_row_is_what_simulate_says(geotrain):
    rows = geotrain("compare", "plan.yaml", "--json").json["rows"]
    alone = geotrain("simulate", "plan.yaml", "--json").json
    own = [row for row in rows if (row["schedule"], row["connections"], row["sharing"]) == ("atlas", 18, "temporal")]
    names = ("step_time_s", "gpu_utilization", "step_over_bound")
    assert [[row[name] for name in names] for row in own] == [[alone[name] for name in names]]


def test_a_plan_with_its_own_number_of_connections_is_compared_with_one(geotrain, example: Path):
    replace(example / "plan.yaml", "connections: auto", "connections: 4")
    rows = geotrain("compare", "plan.yaml", "--json").json["rows"]
    assert {row["connections"] for row in rows} == {1, 4}


def test_what_is_wrong_with_every_variant_is_one_sentence(geotrain, example: Path):
    cluster = example / "cluster.yaml"
    cluster.write_text(cluster.read_text().replace("gpu: a100-80gb", "gpu: v100"))
    answer = geotrain("compare", "plan.yaml", "--json")
    sentence = "plan.yaml: precision 'bf16' is not supported by the GPU 'v100', which has fp16, fp32"
    assert (answer.exit_code, answer.out, answer.err) == (2, "", f"error: {sentence}\n")


def test_progress_is_shown_on_a_terminal_only(geotrain):
    assert geotrain("compare", "plan.yaml").err == ""


def test_a_job_that_fits_no_way_at_all_is_bad_input(geotrain, example: Path):
    replace(example / "job.yaml", "name: gpt-a,", "name: gpt-a, layers: 400,")
    plan = example / "plan.yaml"
    plan.write_text(plan.read_text().replace("layers: 1}", "layers: 100}"))
    answer = geotrain("compare", "plan.yaml", "--json")
    assert answer.exit_code == 2
    assert answer.err.startswith("error: plan.yaml: ")


def test_a_chart_that_cannot_be_written_is_one_sentence(geotrain):
    answer = geotrain("compare", "plan.yaml", "--json", "--chart", "job.yaml/compare.svg")
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith("error: job.yaml/compare.svg: cannot be written: ")


def test_what_is_the_same_is_listed_once(example: Path, geotrain):
    """One connection reaches this cap, so that many are one; for this plan Atlas is Varuna."""
    replace(example / "cluster.yaml", "tcp_window: 1.465 MB", "tcp_window: 1 GB")
    rows = geotrain("compare", "plan.yaml", "--json").json["rows"]
    assert {row["connections"] for row in rows} == {1}
    assert len({(row["schedule"], row["sharing"]) for row in rows}) == len(rows)

    lines = geotrain("compare", "plan.yaml").out.splitlines()
    assert ["varuna"] in [line.split() for line in lines]
    figures = [" ".join(line.split()[1:]) for line in lines if "█" in line]
    assert len(set(figures)) == len(figures)
