import re
from pathlib import Path

import pytest

from geotrain.errors import DoesNotFitError, InputError
from geotrain.plan import Plan
from tests.editing import replace


def test_the_example_is_a_plan_over_three_data_centers(example: Path):
    plan = Plan.load(example / "plan.yaml")
    assert [stage.dc for stage in plan.stages] == ["east", "east", "south", "west"]
    assert (plan.num_pipelines, plan.num_gpus, plan.num_microbatches, plan.tokens_per_step) == (3, 12, 4, 3 * 4 * 4096)
    assert [plan.crosses_wan(stage, stage + 1) for stage in range(3)] == [False, True, True]
    assert plan.datacenter_of(2).name == "south"


def test_a_global_batch_is_dealt_to_the_pipelines(example: Path):
    replace(example / "job.yaml", "microbatches: 4 ", "global_batch: 60 ")
    assert Plan.load(example / "plan.yaml").num_microbatches == 20


def test_cluster_and_job_may_stand_in_the_plan_itself(example: Path):
    plan = Plan.load(example / "plan.yaml")
    assert Plan.parse(plan.dump(), source=Path("inline.yaml")) == plan


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        pytest.param(
            "plan.yaml",
            "pipelines_per_cell: 3",
            "pipelines_per_cell: 4",
            "stages need 8 slots in 'east' (2 stages x 4 pipelines_per_cell x 1 cell), which has 6 slots of 1 GPU",
            id="slots",
        ),
        pytest.param(
            "job.yaml",
            "microbatches: 4 ",
            "global_batch: 64 ",
            "the job's global_batch is 64 and must be a multiple of 3: 3 pipelines x microbatch 1",
            id="batch",
        ),
    ],
)
def test_a_plan_that_does_not_fit_names_its_file(example: Path, file: str, old: str, new: str, sentence: str):
    replace(example / file, old, new)
    with pytest.raises(DoesNotFitError) as caught:
        Plan.load(example / "plan.yaml")
    assert str(caught.value) == f"{example / 'plan.yaml'}: {sentence}"


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        pytest.param(
            "plan.yaml",
            "schedule: atlas",
            "schedule: interleaved",
            "plan.yaml: interleave is 1 and schedule is 'interleaved': "
            "an interleaved schedule needs interleave 2 or more, any other needs 1",
            id="interleaved-once",
        ),
        pytest.param(
            "plan.yaml",
            "schedule: atlas",
            "schedule: interleaved\ninterleave: 2",
            "plan.yaml: stages[0].layers is 1 and must be a multiple of interleave, 2",
            id="uneven-chunks",
        ),
        pytest.param(
            "plan.yaml",
            "tensor_parallel: 1",
            "tensor_parallel: 2",
            "plan.yaml: tensor_parallel is 2 and must be at most 1, the GPUs of a node of 'east'",
            id="node-too-small",
        ),
        pytest.param(
            "plan.yaml",
            "max_in_flight: auto",
            "max_in_flight: 0",
            "plan.yaml: max_in_flight is 0 and must be 'auto' or at least 1",
            id="nothing-in-flight",
        ),
        pytest.param(
            "job.yaml",
            "optimizer: adam",
            "optimizer: adam\nprofile: {stage: [{}, {}]}",
            "plan.yaml: stages has 4 entries and must have 2, like profile.stage of the job",
            id="profile-of-other-stages",
        ),
        pytest.param(
            "cluster.yaml",
            "rtt: 40 ms",
            "rtt: -40 ms",
            "cluster.yaml: wan.default.rtt is '-40 ms' and must be at least 0",
            id="nested-file-is-the-one-named",
        ),
    ],
)
def test_mistakes_name_file_field_and_value(example: Path, file: str, old: str, new: str, sentence: str):
    replace(example / file, old, new)
    with pytest.raises(InputError) as caught:
        Plan.load(example / "plan.yaml")
    assert str(caught.value) == f"{example}/{sentence}"


def copies(example: Path, **replica: object) -> Plan:
    """All stages in the east, one pipeline, and again elsewhere."""
    plan = Plan.load(example / "plan.yaml")
    stages = [stage.model_copy(update={"dc": "east"}) for stage in plan.stages]
    return plan.change(stages=stages, pipelines_per_cell=1, replicas=[{"dc": "south", "cells": 1} | replica])


def test_a_pipeline_may_be_there_again_in_another_data_center(example: Path):
    replace(example / "cluster.yaml", "name: south\n    nodes: 3", "name: south\n    nodes: 8")
    plan = copies(example, cells=2)
    assert (plan.num_pipelines, plan.num_gpus) == (3, 12)
    assert [(dc.name, number) for dc, number in plan.groups] == [("east", 1), ("south", 2)]
    assert Plan.parse(plan.dump(), source=Path("inline.yaml")) == plan


@pytest.mark.parametrize(
    ("replica", "sentence"),
    [
        pytest.param({}, "stages need 4 slots in 'south' (4 stages x 1 pipelines_per_cell x 1 cell), which", id="room"),
        pytest.param({"dc": "east"}, "replicas[0].dc is 'east' and must differ from the data centers", id="home"),
        pytest.param({"dc": "soth"}, "replicas[0].dc names the unknown data center 'soth'", id="unknown"),
    ],
)
def test_copies_that_cannot_be(example: Path, replica: dict[str, object], sentence: str):
    with pytest.raises(InputError, match=re.escape(sentence)):
        copies(example, **replica)


def test_copies_need_equal_gpus_and_stages_in_one_place(example: Path):
    plan = Plan.load(example / "plan.yaml")
    with pytest.raises(InputError, match="replicas are copies of stages in one data center"):
        plan.change(replicas=[{"dc": "south", "cells": 1}])
    dcs = [dc.model_dump() for dc in plan.cluster.datacenters]
    cluster = {"datacenters": [dcs[0], dcs[1] | {"gpu": "h100", "nodes": 9}]}
    stages = [stage.model_copy(update={"dc": "east"}) for stage in plan.stages]
    with pytest.raises(InputError, match="with h100 GPUs and must have the a100-80gb of 'east'"):
        plan.change(cluster=cluster, stages=stages, pipelines_per_cell=1, replicas=[{"dc": "south", "cells": 1}])
