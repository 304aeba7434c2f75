import hashlib
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.planner.provenance import made_by, plan_text
from geotrain.simulation import simulate
from tests.planner.answers import make_plan


def test_the_file_reads_back_as_the_same_plan_and_the_same_step(tmp_path: Path):
    plan = make_plan(["east", "south"], used=["east", "south"], replicas=[])
    origin = made_by("geotrain plan a b", [])
    path = tmp_path / "plan.yaml"
    path.write_text(plan_text(plan, origin, heading="Two stages.\nIn two places."))

    again = Plan.load(path)
    assert again == plan.change(made_by=origin)
    assert simulate(again).step_time_s == simulate(plan).step_time_s
    assert path.read_text().startswith("# Two stages.\n# In two places.\nstages:\n- {dc: east, layers: 4}\n")


def test_the_choices_come_before_the_inputs_and_nothing_is_an_anchor():
    text = plan_text(make_plan(["east", "south"], used=["east"]), made_by("x", []), heading="One.")
    keys = [line.split(":")[0] for line in text.splitlines() if line[0] not in "# -"]

    assert keys == ["stages", "pipelines_per_cell", "schedule", "job", "cluster", "made_by"]
    assert "&id" not in text


def test_inputs_are_known_by_their_hash(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"model: gpt-a\n")
    origin = made_by("geotrain plan", [path])

    assert origin.inputs == {str(path): hashlib.sha256(b"model: gpt-a\n").hexdigest()}
    assert list(origin.versions) == ["geotrain", "python", "numpy", "numba"]
    assert made_by("geotrain plan", [path]) == origin


def test_an_input_that_is_gone_is_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        made_by("geotrain plan", [tmp_path / "gone.yaml"])
