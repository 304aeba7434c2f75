"""The lists of a step as other programs read them."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from geotrain.action import Kind
from geotrain.reports.schedule import pipelines, schedule_csv, schedule_json, schedule_text
from geotrain.schedule import Orders, check
from geotrain.simulation import run
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Result
from tests.reports.sample import interleaved, small
from tests.simulation.plans import make_plan
from tests.simulation.test_invariants import cases

TWO_STAGES: dict[str, Any] = {
    "forward": [1.0, 1.0],
    "backward": [2.0, 2.0],
    "occupancy": [1.0],
    "microbatches": 2,
    "pipelines": 2,
}


def lists(result: Result) -> list[str]:
    return [str(Orders.of([span.action.code for span in slot] for slot in pipeline)) for pipeline in pipelines(result)]


def test_csv_is_a_row_per_rank_without_recompute():
    _, result = run(make_plan(**TWO_STAGES, recompute=[1.0, 1.0]))
    assert lists(result)[0] == "0F0 0F1 0R0 0B0 0R1 0B1\n1F0 1B0 1F1 1B1"
    assert schedule_csv(pipelines(result)[0]) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def test_text_names_the_plan_and_shows_equal_lists_once():
    assert schedule_text(small()) == (
        "# gpt-a (16 layers, 3.43B parameters) in 4 stages over 3 data centers (east, south, west), "
        "3 pipelines of 4 microbatches, schedule 1f1b.\n"
        "# K = 3; predicted step 449.3 ms\n"
        "# one line per slot; 2F0 is stage 2, forward, microbatch 0: "
        "F forward, R recompute, B backward, I input gradient, W weight gradient\n"
        "\n"
        "# pipeline 0, 1, 2 of a cell\n"
        "0F0 0F1 0F2 0F3 0R0 0B0 0R1 0B1 0R2 0B2 0R3 0B3\n"
        "1F0 1F1 1F2 1R0 1B0 1F3 1R1 1B1 1R2 1B2 1R3 1B3\n"
        "2F0 2F1 2R0 2B0 2F2 2R1 2B1 2F3 2R2 2B2 2R3 2B3\n"
        "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3\n"
    )


def test_json_says_where_and_when():
    _, result = run(make_plan(**TWO_STAGES))
    answer = json.loads(json.dumps(schedule_json(result)))
    assert (answer["schema"], answer["schedule"], answer["microbatches"]) == ("schedule", "1f1b", 2)
    assert answer["stages"] == [
        {"stage": 0, "slot": 0, "dc": "dc0", "layers": 1},
        {"stage": 1, "slot": 1, "dc": "dc1", "layers": 1},
    ]
    assert [pipeline["pipeline"] for pipeline in answer["pipelines"]] == [0, 1]
    last = answer["pipelines"][1]["slots"][1]
    assert (last["slot"], last["dc"]) == (1, "dc1")
    assert last["actions"][:2] == [
        {"action": "1F0", "start_s": pytest.approx(0.002), "end_s": pytest.approx(0.003)},
        {"action": "1B0", "start_s": pytest.approx(0.003), "end_s": pytest.approx(0.005)},
    ]


def test_stages_of_an_interleaved_plan_are_counted_through_all_chunks():
    answer = schedule_json(interleaved())
    assert [(stage["stage"], stage["slot"], stage["dc"], stage["layers"]) for stage in answer["stages"]] == [
        (0, 0, "east", 2),
        (1, 1, "south", 2),
        (2, 0, "east", 2),
        (3, 1, "south", 2),
    ]
    assert len(answer["pipelines"]) == 2


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "atlas"])
@given(case=cases())
@settings(max_examples=15)
def test_every_pipeline_gets_the_list_that_was_played(schedule: str, case: dict[str, Any]):
    played, result = run(make_plan(**case, schedule=schedule))
    problem, slots = Problem(result.plan), len(result.plan.stages)
    exported = lists(result)
    assert len(exported) == result.plan.pipelines_per_cell
    assert exported == [str(orders) for orders in played.orders().of_pipelines(slots)] * played.wiring.copies
    for text, pipeline in zip(exported, pipelines(result), strict=True):
        check(Orders.parse(text), problem.shape)
        assert all(a.end_s <= b.start_s + 1e-12 for slot in pipeline for a, b in pairwise(slot))
        rows = Orders.parse(schedule_csv(pipeline).replace(",", " "))
        played_without = [[a for a in slot if a.kind != Kind.R] for slot in Orders.parse(text)]
        assert list(rows) == played_without


def test_what_the_text_shows_can_be_read_back():
    case = TWO_STAGES | {"microbatches": 4}
    _, result = run(make_plan(**case, schedule="zero-bubble", sharing="temporal"))
    lines = [line for line in schedule_text(result).splitlines() if not line.startswith("#")]
    blocks = "\n".join(lines).strip().split("\n\n")
    assert set(blocks) == set(lists(result))
