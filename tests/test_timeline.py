"""A step small enough to be drawn by hand: two slots, two pipelines, of which the second waits longer.

second               0 1 2 3 4 5 6 7 8 9 . . .
pipeline 0   slot 0  F F . . B B . B B
             slot 1  . F B B F B B
pipeline 1   slot 0  F . . . . B B F . . . B B
             slot 1  . . F B B . . . F B B
"""

import numpy as np
import pytest

from geotrain.action import Action, Kind
from geotrain.timeline import Actions, Timeline, Transfers

STEP = """
0: 0F0@0-1 0F1@1-2 1F0@1-2 1B0@2-4 0B0@4-6 1F1@4-5 1B1@5-7 0B1@7-9
1: 0F0@0-1 1F0@2-3 1B0@3-5 0B0@5-7 0F1@7-8 1F1@8-9 1B1@9-11 0B1@11-13
"""


def make_timeline(text: str, *, num_stages: int, update: tuple[float, float] = (0, 0)) -> Timeline:
    """From a line per pipeline of `action@start-end`; all slots reduce at 13, and update from 14 on."""
    rows = []
    for line in text.strip().splitlines():
        pipeline, _, words = line.partition(": ")
        for word in words.split():
            action, _, span = word.partition("@")
            start, _, end = span.partition("-")
            rows.append((float(start), float(end), int(pipeline), *Action.parse(action)))
    rows.sort(key=lambda row: row[0])
    starts, ends, pipelines, stages, kinds, microbatches = (np.array(column) for column in zip(*rows, strict=True))
    none = np.zeros(0, dtype=np.int64)
    return Timeline(
        num_stages=num_stages,
        num_pipelines=int(pipelines.max()) + 1,
        copies=1,
        actions=Actions(
            kind=kinds, stage=stages, microbatch=microbatches, pipeline=pipelines, start_s=starts, end_s=ends
        ),
        transfers=Transfers(
            source=none,
            target=none,
            backward=none.astype(np.bool_),
            stage=none,
            microbatch=none,
            pipeline=none,
            start_s=none.astype(np.float64),
            end_s=none.astype(np.float64),
            arrive_s=none.astype(np.float64),
        ),
        reduce_start_s=np.full(num_stages, 13.0),
        update_start_s=np.full(num_stages, 14.0),
        update_end_s=14.0 + np.array(update)[:num_stages],
    )


def in_order(timeline: Timeline) -> str:
    """What each slot did, one line per slot."""
    actions = timeline.actions
    lines: dict[int, list[str]] = {}
    for row in timeline.by_slot:
        action = Action(int(actions.stage[row]), Kind(int(actions.kind[row])), int(actions.microbatch[row]))
        lines.setdefault(int(timeline.slot_of_action[row]), []).append(str(action))
    return "\n".join(f"{slot}: {' '.join(words)}" for slot, words in lines.items())


def test_rows_are_found_slot_by_slot_in_the_order_they_were_done():
    timeline = make_timeline(STEP, num_stages=2)
    assert len(timeline.actions) == 16
    assert in_order(timeline) == (
        "0: 0F0 0F1 0B0 0B1\n"
        "1: 1F0 1B0 1F1 1B1\n"
        "2: 0F0 0B0 0F1 0B1\n"
        "3: 1F0 1B0 1F1 1B1"
    )  # fmt: skip


def test_busy_time_counts_actions_and_the_optimizer_but_not_the_all_reduce():
    assert make_timeline(STEP, num_stages=2).busy_s.tolist() == [[6, 6], [6, 6]]
    assert make_timeline(STEP, num_stages=2, update=(0.5, 2)).busy_s.tolist() == [[6.5, 8], [6.5, 8]]


def test_the_step_ends_with_the_last_optimizer():
    assert make_timeline(STEP, num_stages=2, update=(0.5, 2)).step_time_s == 16


def test_busy_time_by_kind_is_summed_over_pipelines():
    busy = {kind: seconds.tolist() for kind, seconds in make_timeline(STEP, num_stages=2).busy_by_kind_s().items()}
    nothing = [0, 0]
    assert busy == {Kind.F: [4, 4], Kind.R: nothing, Kind.B: [8, 8], Kind.I: nothing, Kind.W: nothing}


def test_the_peak_in_flight_is_that_of_the_pipeline_that_holds_most():
    assert make_timeline(STEP, num_stages=2).peak_in_flight().tolist() == [2, 1]


def test_the_first_stage_of_a_pipeline_alone_holds_what_it_has_begun():
    waiting = make_timeline(STEP.strip().splitlines()[1].replace("1: ", "0: "), num_stages=2)
    assert waiting.peak_in_flight().tolist() == [1, 1]


def test_a_split_backward_ends_with_its_input_gradient():
    timeline = make_timeline(
        "0: 0F0@0-1 0F1@1-2 0R0@2-3 0I0@3-4 0F2@4-5 0I1@5-6 0W0@6-7 0I2@7-8 0W1@8-9 0W2@9-10", num_stages=1
    )
    assert timeline.peak_in_flight().tolist() == [2]
    assert {kind.name: seconds.tolist() for kind, seconds in timeline.busy_by_kind_s().items()} == {
        "F": [3], "R": [1], "B": [0], "I": [3], "W": [3],
    }  # fmt: skip


def test_chunks_of_a_slot_count_together():
    timeline = make_timeline("0: 0F0@0-1 1F0@1-2 2F0@2-3 3F0@3-4 3B0@4-6 2B0@6-8 1B0@8-10 0B0@10-12", num_stages=2)
    assert in_order(timeline) == "0: 0F0 2F0 2B0 0B0\n1: 1F0 3F0 3B0 1B0"
    assert timeline.busy_s.tolist() == [[6, 6]]
    assert timeline.peak_in_flight().tolist() == [2, 2]


def test_columns_of_different_lengths_are_a_bug():
    ints, floats = np.zeros(2, dtype=np.int64), np.zeros(1)
    with pytest.raises(AssertionError, match="columns of different lengths"):
        Actions(kind=ints, stage=ints, microbatch=ints, pipeline=ints, start_s=floats, end_s=floats)
