import json
from pathlib import Path

import pytest

from geotrain.plan import Plan
from tests.editing import replace
from tests.training.runs import record, simulated


@pytest.fixture(autouse=True)
def beside_the_plan(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of the plan beside it, a tenth slower than predicted."""
    monkeypatch.chdir(example)
    record(simulated(Plan.load(Path("plan.yaml"))), Path("run"), stretch=(2.0, 1.1, 1.1, 1.1))


def test_a_plan_against_a_run(geotrain):
    answer = geotrain("compare-runs", "plan.yaml", "run", "--json")
    assert (answer.exit_code, answer.err) == (0, "")
    rule_s = geotrain("simulate", "plan.yaml", "--json").json["step_time_s"]
    assert 0.8 * rule_s < answer.json["step_time_s"]["simulated"] <= rule_s
    assert answer.json["error"] == pytest.approx(1 / 1.1 - 1)
    assert {row["action"] for row in answer.json["rows"] if "action" in row} == {
        "forward", "recompute", "backward", "all-reduce", "optimizer",
    }  # fmt: skip
    assert len([row for row in answer.json["rows"] if "from" in row]) == 5


def test_the_table_picture_and_trace(geotrain):
    answer = geotrain("compare-runs", "plan.yaml", "run", "--picture", "both.svg", "--trace", "both.json")
    assert (answer.exit_code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("gpt-a (4 layers, 1.22B parameters) in 4 stages over 3 data centers")
    assert any(line.startswith("step time ") and " -9.1% " in line for line in lines)
    assert lines[-2:] == ["picture: both.svg", "trace:   both.json  (open it at ui.perfetto.dev)"]
    assert Path("both.svg").read_text().startswith("<svg ")
    assert len(json.loads(Path("both.json").read_text())["traceEvents"]) > 200


def test_a_saved_timeline_stands_for_the_plan_and_for_the_run(geotrain):
    saved = geotrain("simulate", "plan.yaml", "--timeline", "step.json")
    assert saved.out.splitlines()[-1] == "timeline: step.json  (for `geotrain compare-runs`)"
    assert geotrain("compare-runs", "step.json", "step.json", "--json").json["error"] == 0
    by_plan = geotrain("compare-runs", "plan.yaml", "run", "--json")
    assert geotrain("compare-runs", "step.json", "run", "--json") == by_plan


def test_a_run_that_was_gathered_needs_no_spans(geotrain):
    from geotrain.training.measured import gather

    before = geotrain("compare-runs", "plan.yaml", "run", "--json")
    gather(Path("run")).save(Path("run/timeline.json"))
    for path in Path("run/spans").iterdir():
        path.unlink()
    assert geotrain("compare-runs", "plan.yaml", "run", "--json") == before
    assert geotrain("compare-runs", "plan.yaml", "run/timeline.json", "--json") == before


def test_a_plan_that_was_changed_since_is_compared_and_named(geotrain, example: Path):
    replace(example / "plan.yaml", "schedule: atlas", "schedule: varuna")
    assert geotrain("compare-runs", "plan.yaml", "run", "--json").json["plans_differ_in"] == ["schedule"]


WARNING = (
    "The plan has a100-80gb in east, south, west, and the run computed on cpu: `geotrain profile PLAN --write` there "
    "puts measured times into the job."
)


@pytest.mark.parametrize("gathered", [False, True])
def test_a_run_on_another_device_than_the_plans_is_compared_with_a_warning(geotrain, gathered: bool):
    from geotrain.training.measured import gather

    record(simulated(Plan.load(Path("plan.yaml"))), Path("run"), device="cpu")
    if gathered:
        gather(Path("run")).save(Path("run/timeline.json"))
    answer = geotrain("compare-runs", "plan.yaml", "run", "--json").json
    assert answer["other_devices"] == [
        {"dc": dc, "planned": "a100-80gb", "ran": "cpu"} for dc in ("east", "south", "west")
    ]
    assert answer["warnings"] == [WARNING]
    assert " ".join(geotrain("compare-runs", "plan.yaml", "run").out.split()).endswith(WARNING)


@pytest.mark.parametrize("device", ["NVIDIA A100-SXM4-80GB", "emulated", None])
def test_the_plans_own_gpu_or_none_at_all_is_no_other_device(geotrain, device: str | None):
    record(simulated(Plan.load(Path("plan.yaml"))), Path("run"), device=device)
    assert geotrain("compare-runs", "plan.yaml", "run", "--json").json["warnings"] == []


def test_measured_times_make_up_for_another_device(geotrain):
    with Path("job.yaml").open("a") as job:
        job.write("profile: {stage: {forward_s: 0.1, backward_s: 0.2}}\n")
    record(simulated(Plan.load(Path("plan.yaml"))), Path("run"), device="cpu")
    answer = geotrain("compare-runs", "plan.yaml", "run", "--json").json
    assert (answer["other_devices"], answer["warnings"]) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["nothing.yaml", "run"], "nothing.yaml: no such file", id="no-plan"),
        pytest.param(["plan.yaml", "nowhere"], "nowhere: no such file", id="no-run"),
        pytest.param(
            ["plan.yaml", "plan.yaml"],
            "plan.yaml: is not a saved timeline, and must be one or the directory of a run",
            id="a-plan-for-the-run",
        ),
        pytest.param(
            ["plan.yaml", "."],
            ".: has neither timeline.json nor spans/*.jsonl, so nothing was recorded there",
            id="a-directory-without-a-run",
        ),
        pytest.param(["cluster.yaml", "run"], "cluster.yaml: wan.default is not a known field: ", id="no-plan-at-all"),
        pytest.param(
            ["plan.yaml", "run", "--picture", "job.yaml/a.svg"], "job.yaml/a.svg: cannot be written: ", id="picture"
        ),
    ],
)
def test_bad_input_is_one_sentence(geotrain, arguments: list[str], sentence: str):
    answer = geotrain("compare-runs", *arguments)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"error: {sentence}")
