import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.timeline import Timeline
from geotrain.training.measured import gather, merge
from geotrain.training.recording import Recording
from geotrain.training.spans import Spans
from tests.training.plans import plan
from tests.training.runs import record, simulated

PROFILE = {"stage": {"forward_s": 0.01, "backward_s": 0.02, "weight_grad_s": 0.01}, "boundary_bytes": "1 MB"}
JOB = {"profile": PROFILE | {"optimizer_s": 0.001}}


def with_fabric(made: Plan) -> Plan:
    """Also inside data centers transfers take time."""
    content = made.dump()
    for dc in content["cluster"]["datacenters"]:
        dc["fabric"] = {"rate": "10 Gbit/s", "latency": "100 us"}
    return Plan.parse(content, source=Path("plan.yaml"))


THREE = ("east", "south", "west")
PLANS = {
    "1f1b": lambda: plan(THREE, job=JOB, schedule="1f1b"),
    "split backward": lambda: plan(THREE, job=JOB, schedule="zero-bubble"),
    "pooled": lambda: with_fabric(plan(THREE, job=JOB, pipelines_per_cell=3, schedule="varuna")),
    "spatial": lambda: plan(THREE, job=JOB, pipelines_per_cell=2, schedule="gpipe", wan={"sharing": "spatial"}),
    "cells": lambda: plan(THREE, job=JOB, pipelines_per_cell=2, cells=2, schedule="atlas"),
    "fabric": lambda: with_fabric(plan(("east", "east", "south"), job=JOB, schedule="varuna")),
    "interleaved": lambda: plan(
        THREE, job=JOB, layers=6, interleave=2, schedule="interleaved", pipelines_per_cell=2
    ),
    "shared link": lambda: plan(
        THREE, job=JOB, pipelines_per_cell=2, schedule="1f1b", wan={"sharing": "spatial"}, link={"capacity": 2e8}
    ),
    "tensor parallel": lambda: plan(("east", "south"), job=JOB, tensor_parallel=2, gpus_per_node=2, schedule="1f1b"),
    "replicas": lambda: plan(
        ("east", "east"), job=JOB, replicas=[{"dc": "south", "cells": 1}], pipelines_per_cell=2, schedule="1f1b"
    ),
}  # fmt: skip


def rows(timeline: Timeline, pipelines: int) -> dict[tuple[object, ...], list[float]]:
    """Every span and its times, those of pipelines that were simulated as one repeated."""
    found: dict[tuple[object, ...], list[float]] = {}
    done, moved = timeline.actions, timeline.transfers
    for pipeline in range(pipelines):
        for row in np.flatnonzero(done.pipeline == pipeline % timeline.num_pipelines):
            what = int(done.kind[row]), int(done.stage[row]), int(done.microbatch[row])
            found["action", pipeline, *what] = [done.start_s[row], done.end_s[row]]
        for row in np.flatnonzero(moved.pipeline == pipeline % timeline.num_pipelines):
            ends = int(moved.source[row]), int(moved.target[row])
            parcel = bool(moved.backward[row]), int(moved.stage[row]), int(moved.microbatch[row])
            found["transfer", pipeline, *parcel, *ends] = [moved.start_s[row], moved.end_s[row], moved.arrive_s[row]]
    for stage in range(timeline.num_stages):
        closing = (timeline.reduce_start_s, timeline.update_start_s, timeline.update_end_s)
        found["closing", stage] = [times[stage] for times in closing]
    return found


@pytest.mark.parametrize("make", PLANS.values(), ids=list(PLANS))
def test_what_every_process_saw_of_a_simulated_step_adds_up_to_it(tmp_path: Path, make: Callable[[], Plan]):
    before = simulated(make())
    record(before, tmp_path, stretch=[1.0, 1.0])
    after = gather(tmp_path)
    assert (after.origin, after.plan, after.pooled) == ("measured", before.plan, before.pooled)
    assert [step for step, _ in after.steps] == [0, 1]
    wanted = rows(before.steps[0][1], before.plan.num_pipelines)
    for _, timeline in after.steps:
        assert (timeline.num_pipelines, timeline.copies) == (before.plan.num_pipelines, 1)
        found = rows(timeline, before.plan.num_pipelines)
        assert found.keys() == wanted.keys()
        for key, times in wanted.items():
            assert found[key] == pytest.approx(times, abs=1e-9), key


def test_a_gathered_run_can_be_saved_and_loaded(tmp_path: Path):
    record(simulated(PLANS["pooled"]()), tmp_path)
    run = gather(tmp_path)
    run.save(tmp_path / "timeline.json")
    assert Recording.load(tmp_path / "timeline.json").step_time_s == run.step_time_s


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    record(simulated(PLANS["pooled"]()), directory, stretch=[1.0, 1.1])
    return directory


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded, tmp_path / "run")


def edit(path: Path, line: int, change: Callable[[Any], object]) -> None:
    lines = path.read_text().splitlines()
    content = json.loads(lines[line])
    change(content)
    lines[line] = json.dumps(content)
    path.write_text("\n".join([*lines, ""]))


def test_a_step_that_one_process_has_not_recorded_is_left_out(run: Path):
    path = run / "spans" / "west-2.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert [step for step, _ in gather(run).steps] == [0]


def drop_steps(run: Path) -> None:
    path = run / "spans" / "west-2.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")


def cut(run: Path) -> None:
    path = run / "spans" / "south-1.jsonl"
    path.write_text(path.read_text()[:-40])


def change(name: str, line: int, change: Callable[[Any], object]) -> Callable[[Path], None]:
    return lambda run: edit(run / "spans" / f"{name}.jsonl", line, change)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        pytest.param(
            lambda run: shutil.rmtree(run / "spans"),
            "{run}: has neither timeline.json nor spans/*.jsonl, so nothing was recorded there",
            id="nothing",
        ),
        pytest.param(
            lambda run: (run / "spans" / "south-1.jsonl").unlink(),
            "the spans of south-1 are missing: the plan has 9 slots",
            id="missing-rank",
        ),
        pytest.param(
            lambda run: [path.unlink() for path in (run / "spans").glob("west-*")],
            "the spans of west-0 and 2 more are missing: the plan has 9 slots",
            id="missing-data-center",
        ),
        pytest.param(drop_steps, "no step was recorded by all 9 slots", id="no-steps"),
        pytest.param(
            cut, "{run}/spans/south-1.jsonl: line 3 has no end: its process stopped while writing", id="half-written"
        ),
        pytest.param(
            lambda run: (run / "spans" / "south-1.jsonl").write_text(""),
            "{run}/spans/south-1.jsonl: line 1 has no end: its process stopped while writing",
            id="empty",
        ),
        pytest.param(
            lambda run: (run / "spans" / "south-1.jsonl").write_text("{}\nnonsense\n"),
            "{run}/spans/south-1.jsonl: line 2: not valid JSON: line 1, column 1: Expecting value",
            id="nonsense",
        ),
        pytest.param(
            change("south-1", 0, lambda head: head.update(plan_fingerprint="another")),
            "{run}/spans/south-1.jsonl: was recorded with another plan than {run}/spans/east-0.jsonl",
            id="other-plan",
        ),
        pytest.param(
            change("south-1", 0, lambda head: head.pop("clock_offset_s")),
            "{run}/spans/south-1.jsonl: clock_offset_s is missing",
            id="missing-field",
        ),
        pytest.param(
            change("south-1", 2, lambda step: step["actions"]["kind"].__setitem__(1, "Q")),
            "{run}/spans/south-1.jsonl: line 3: actions.kind[1] is 'Q' and must be 'F', 'R', 'B', 'I' or 'W'",
            id="unknown-kind",
        ),
        pytest.param(
            change("east-1", 1, lambda step: [column.pop(0) for column in step["sends"].values()]),
            "step 0: the activation of microbatch 0 from stage 0 in pipeline 1 arrived and was never sent",
            id="never-sent",
        ),
        pytest.param(
            change("south-2", 1, lambda step: [column.pop(0) for column in step["arrivals"].values()]),
            "step 0: the activation of microbatch 0 from stage 0 in pipeline 2 was sent and never arrived",
            id="never-arrived",
        ),
        pytest.param(
            change("east-0", 2, lambda step: step["actions"]["microbatch"].__setitem__(0, 4)),
            "{run}: spans of step 1: actions.microbatch has 4 and must be below 4",
            id="microbatch-that-is-not",
        ),
    ],
)
def test_a_run_that_cannot_be_gathered_is_one_sentence(run: Path, spoil: Callable[[Path], object], sentence: str):
    spoil(run)
    with pytest.raises(InputError) as caught:
        gather(run)
    assert str(caught.value) == sentence.format(run=run)


@given(random=st.randoms(use_true_random=False), spread_s=st.sampled_from([0.0, 1e-4, 1e-2, 1.0]))
@settings(max_examples=30)
def test_however_wrong_the_clocks_are_a_channel_carries_one_transfer_at_a_time(recorded: Path, random, spread_s: float):
    ranks = [Spans.load(path) for path in sorted((recorded / "spans").glob("*.jsonl"))]
    for spans in ranks:
        off_s = spans.head.clock_offset_s + random.uniform(-spread_s, spread_s)
        object.__setattr__(spans, "head", spans.head.model_copy(update={"clock_offset_s": off_s}))
    made = PLANS["pooled"]()
    for _, timeline in merge(made, frozenset({0, 1}), ranks):
        moved = timeline.transfers
        assert (moved.start_s <= moved.end_s).all() and (moved.end_s <= moved.arrive_s).all()
        assert (np.diff(moved.start_s) >= 0).all() and (np.diff(timeline.actions.start_s) >= 0).all()
        for ends in {(0, 1), (1, 2), (2, 1), (1, 0)}:
            mine = (moved.source == ends[0]) & (moved.target == ends[1])
            spans_s = sorted(zip(moved.start_s[mine].tolist(), moved.end_s[mine].tolist(), strict=True))
            assert len(spans_s) == 12
            assert all(before[1] <= after[0] for before, after in pairwise(spans_s))


def test_what_arrives_before_it_was_sent_takes_no_time(run: Path):
    def early(step: Any) -> None:
        step["arrivals"]["arrived_s"] = [step["begin_s"]] * len(step["arrivals"]["arrived_s"])

    for path in (run / "spans").glob("*.jsonl"):
        edit(path, 1, early)
    timeline = gather(run).steps[0][1]
    moved = timeline.transfers
    assert np.array_equal(moved.arrive_s, moved.end_s) and len(moved) == 48
