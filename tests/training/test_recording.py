import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geotrain.action import Kind
from geotrain.errors import InputError
from geotrain.timeline import Actions, Timeline, Transfers
from geotrain.training.recording import Recording, fingerprint, is_recording
from tests.training.plans import plan
from tests.training.runs import simulated

PLAN = plan(("east", "south", "west"), pipelines_per_cell=2, schedule="1f1b")
TIMES = st.floats(0, 1e6)


def alike(one: Timeline, other: Timeline) -> bool:
    """Equal to the last bit."""
    for field in fields(Timeline):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, Actions | Transfers):
            columns = [(getattr(ours, column.name), getattr(theirs, column.name)) for column in fields(ours)]
            if not all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in columns):
                return False
        elif not np.array_equal(ours, theirs):
            return False
    return True


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Any rows that PLAN allows."""

    def columns(names: dict[str, int], times: list[str], *, least: int) -> dict[str, Any]:
        row = st.tuples(*(st.integers(0, below - 1) for below in names.values()), *(TIMES for _ in times))
        rows = [(*row[: len(names)], *sorted(row[len(names) :])) for row in draw(st.lists(row, min_size=least))]
        rows.sort(key=lambda row: row[len(names)])
        table = list(zip(*rows, strict=True)) or [()] * (len(names) + len(times))
        ints = {name: np.array(column, dtype=np.int64) for name, column in zip(names, table, strict=False)}
        return ints | {n: np.array(c, dtype=float) for n, c in zip(times, table[len(names) :], strict=True)}

    place = {"stage": 3, "microbatch": 4, "pipeline": 2}
    moved = columns({"source": 3, "target": 3, "backward": 2} | place, ["start_s", "end_s", "arrive_s"], least=0)
    closing = np.sort(np.array(draw(st.lists(TIMES, min_size=9, max_size=9))).reshape(3, 3), axis=0)
    return Timeline(
        num_stages=3,
        num_pipelines=2,
        copies=1,
        actions=Actions(**columns({"kind": len(Kind)} | place, ["start_s", "end_s"], least=1)),
        transfers=Transfers(**moved | {"backward": moved["backward"].astype(bool)}),
        reduce_start_s=closing[0],
        update_start_s=closing[1],
        update_end_s=closing[2],
    )


@given(st.lists(st.tuples(st.integers(0, 10**6), timelines()), min_size=1, max_size=3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_saved_is_loaded_to_the_last_bit(tmp_path: Path, steps: list[tuple[int, Timeline]]):
    saved = Recording(origin="measured", plan=PLAN, pooled=frozenset({1}), steps=steps)
    saved.save(tmp_path / "timeline.json")
    loaded = Recording.load(tmp_path / "timeline.json")
    assert (loaded.origin, loaded.plan, loaded.pooled) == ("measured", PLAN, frozenset({1}))
    assert [number for number, _ in loaded.steps] == [number for number, _ in steps]
    assert all(alike(ours, theirs) for (_, ours), (_, theirs) in zip(steps, loaded.steps, strict=True))


def test_a_simulated_step_comes_back_as_it_was(tmp_path: Path):
    before = simulated(PLAN)
    before.save(tmp_path / "step.json")
    after = Recording.load(tmp_path / "step.json")
    assert alike(before.steps[0][1], after.steps[0][1])
    assert (after.step_time_s, after.sharing) == (before.step_time_s, before.sharing)
    assert is_recording(tmp_path / "step.json")


def test_steps_stand_on_lines_of_their_own_and_the_same_steps_are_the_same_bytes(tmp_path: Path):
    one = simulated(PLAN)
    Recording(origin="measured", plan=PLAN, pooled=frozenset(), steps=one.steps * 3).save(tmp_path / "a.json")
    Recording(origin="measured", plan=PLAN, pooled=frozenset(), steps=one.steps * 3).save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (tmp_path / "a.json").read_text().count("\n") == 4


def test_the_first_step_does_not_count_unless_it_is_the_only_one():
    timeline = simulated(PLAN).steps[0][1]

    def lasting(step_s: float) -> Timeline:
        return replace(timeline, update_end_s=np.full(3, step_s))

    times = {3: 90.0, 4: 10.0, 5: 12.0, 6: 11.0}
    steps = [(number, lasting(step_s)) for number, step_s in times.items()]
    run = Recording(origin="measured", plan=PLAN, pooled=frozenset(), steps=steps)
    assert (run.step_time_s, run.typical.number) == (11, 6)
    alone = Recording(origin="measured", plan=PLAN, pooled=frozenset(), steps=steps[:1])
    assert (alone.step_time_s, alone.typical.number) == (90, 3)


def test_a_fingerprint_is_that_of_what_the_plan_says():
    assert fingerprint(PLAN) == fingerprint(plan(("east", "south", "west"), pipelines_per_cell=2, schedule="1f1b"))
    assert fingerprint(PLAN) != fingerprint(PLAN.change(schedule="gpipe"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    simulated(PLAN).save(tmp_path / "timeline.json")
    return tmp_path / "timeline.json"


def edit(change: Callable[[Any], object]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edited


def step(change: Callable[[Any], object]) -> Callable[[str], str]:
    return edit(lambda content: change(content["steps"][0]))


def put(column: str, row: int, value: object) -> Callable[[str], str]:
    table, _, name = column.partition(".")
    return step(lambda step: step[table][name].__setitem__(row, value))


BAD = [
    pytest.param(lambda text: "", "not valid JSON: ends too early: Expecting value", id="empty"),
    pytest.param(lambda text: text[:1000], "not valid JSON: ", id="half-written"),
    pytest.param(lambda text: "[1, 2]", "must be a mapping of fields, but is a list", id="a-list"),
    pytest.param(lambda text: "9" * 5000, "not valid JSON: Exceeds the limit", id="endless-number"),
    pytest.param(lambda text: "[" * 100_000, "not valid JSON: ", id="endless-brackets"),
    pytest.param(edit(lambda c: c.update(geotrain_timeline=2)), "geotrain_timeline is 2 and must be 1", id="version"),
    pytest.param(edit(lambda c: c.pop("pooled")), "pooled is missing", id="missing-field"),
    pytest.param(
        edit(lambda c: c.update(steps=[])), "steps is a list of 0 and must be a list of at least 1", id="none"
    ),
    pytest.param(
        edit(lambda c: c["plan"].update(schedule="gpipe")), "plan_fingerprint is '", id="plan-that-was-changed"
    ),
    pytest.param(
        edit(lambda c: c["plan"]["stages"][0].update(dc="easd")),
        "stages[0].dc names the unknown data center 'easd': did you mean 'east'?",
        id="bad-plan",
    ),
    pytest.param(
        put("actions.kind", 3, "X"),
        "steps[0].actions.kind[3] is 'X' and must be 'F', 'R', 'B', 'I' or 'W'",
        id="kind",
    ),
    pytest.param(
        put("actions.end_s", 3, "soon"), "steps[0].actions.end_s[3] is 'soon' and must be a number", id="text-for-time"
    ),
    pytest.param(
        put("actions.end_s", 3, float("nan")),
        "steps[0].actions.end_s[3] is nan and must be a finite number",
        id="no-number",
    ),
    pytest.param(
        put("actions.end_s", 0, -1.0),
        "steps[0]: actions.end_s has a time that is 1 s before the one it follows",
        id="ends-before-it-begins",
    ),
    pytest.param(
        put("actions.stage", 0, 3), "steps[0]: actions.stage has 3 and must be below 3", id="stage-that-is-not"
    ),
    pytest.param(
        put("transfers.target", 0, 3), "steps[0]: transfers.target has 3 and must be below 3", id="target-that-is-not"
    ),
    pytest.param(
        step(lambda step: step["actions"]["stage"].pop()),
        "steps[0].actions: columns must have one length, but have kind 48, stage 47, microbatch 48",
        id="uneven-columns",
    ),
    pytest.param(
        step(lambda step: step.update(num_stages=2)),
        "steps[0]: num_stages, and every list with an entry per stage, must be 3, as the plan has",
        id="stages",
    ),
    pytest.param(
        step(lambda step: step.update(num_pipelines=3)),
        "steps[0]: num_pipelines x copies is 3 x 1 and must be 2, a cell, or 2, all of the plan's",
        id="pipelines",
    ),
]


@pytest.mark.parametrize(("spoil", "sentence"), BAD)
def test_a_bad_file_is_one_sentence(file: Path, spoil: Callable[[str], str], sentence: str):
    file.write_text(spoil(file.read_text()))
    with pytest.raises(InputError) as caught:
        Recording.load(file)
    assert str(caught.value).startswith(f"{file}: {sentence}")
    assert "\n" not in str(caught.value)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([{}]),
)


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_a_file_is_taken_or_refused_in_a_sentence(tmp_path: Path, data: st.DataObject):
    path = tmp_path / "timeline.json"
    simulated(PLAN).save(path)
    place: Any = json.loads(path.read_text())
    content, key = place, data.draw(st.sampled_from(sorted(place)))
    while place[key] and isinstance(place[key], dict | list) and data.draw(st.integers(0, 4)):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(JUNK)
    path.write_text(json.dumps(content))
    try:
        Recording.load(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
