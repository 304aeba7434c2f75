import json
import threading
from pathlib import Path

import pytest

from geotrain.action import Kind
from geotrain.errors import RunError
from geotrain.seating import Seating
from geotrain.training.recorder import Recorder
from geotrain.training.recording import fingerprint
from geotrain.training.spans import Spans
from tests.training.plans import plan

PLAN = plan(("east", "south"), pipelines_per_cell=2)
SEAT = Seating(PLAN).seats[1]


def recorder(run: Path, steps: range = range(100)) -> Recorder:
    return Recorder(run, SEAT, plan=PLAN, pooled=[0], clock_offset_s=0.25, steps=steps, device="cpu")


def play(recorder: Recorder, step: int) -> None:
    """A microbatch there and back, and the next step's activation arriving early."""
    recorder.action(Kind.F, 0, 0, 1.0, 2.0)
    recorder.sent((step, False, 0, 0), 2.0)
    recorder.arrived((step, True, 1, 0), 3.0)
    recorder.action(Kind.B, 0, 0, 3.0, 5.0)
    recorder.arrived((step + 1, True, 1, 0), 5.5)
    recorder.step(step, begin_s=1.0, reduce_start_s=5.0, update_start_s=6.0, update_end_s=7.0)


def test_a_file_is_a_head_and_a_line_per_step(tmp_path: Path):
    ours = recorder(tmp_path)
    play(ours, 3)
    ours.write()
    head, step = map(json.loads, (tmp_path / "spans" / "east-1.jsonl").read_text().splitlines())
    assert head == {
        "geotrain_spans": 1,
        "plan_fingerprint": fingerprint(PLAN),
        "plan": PLAN.dump(),
        "pooled": [0],
        "dc": "east",
        "rank": 1,
        "stage": 0,
        "pipeline": 1,
        "part": 0,
        "clock_offset_s": 0.25,
        "device": "cpu",
    }
    assert step == {
        "step": 3,
        "begin_s": 1.0,
        "reduce_start_s": 5.0,
        "update_start_s": 6.0,
        "update_end_s": 7.0,
        "actions": {
            "kind": ["F", "B"], "stage": [0, 0], "microbatch": [0, 0], "start_s": [1.0, 3.0], "end_s": [2.0, 5.0],
        },
        "sends": {"backward": [False], "stage": [0], "microbatch": [0], "handed_s": [2.0]},
        "arrivals": {"backward": [True], "stage": [1], "microbatch": [0], "arrived_s": [3.0]},
    }  # fmt: skip


def test_only_the_steps_asked_for_are_kept_and_what_came_early_is_the_later_steps(tmp_path: Path):
    ours = recorder(tmp_path, range(2, 4))
    for step in range(6):
        play(ours, step)
        ours.write()
    steps = Spans.load(ours.path).steps
    assert list(steps) == [2, 3]
    assert steps[3].arrivals.arrived_s == [5.5, 3.0]


def test_nothing_is_touched_before_a_step_is_over_and_then_the_file_begins_anew(tmp_path: Path):
    before = recorder(tmp_path)
    play(before, 1)
    before.write()
    again = recorder(tmp_path)
    again.write()
    assert list(Spans.load(again.path).steps) == [1]
    play(again, 7)
    again.write()
    assert list(Spans.load(again.path).steps) == [7]


def test_arrivals_of_many_threads_are_all_there(tmp_path: Path):
    ours, steps, each = recorder(tmp_path), 20, 200

    def arrive(thread: int) -> None:
        for step in range(steps):
            for number in range(each):
                ours.arrived((step, True, 1, thread * each + number), float(step))

    threads = [threading.Thread(target=arrive, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    # A step that nobody wants ends, again and again, while arrivals of later ones come in.
    while any(thread.is_alive() for thread in threads):
        ours.step(-1, begin_s=0.0, reduce_start_s=0.0, update_start_s=0.0, update_end_s=0.0)
    for step in range(steps):
        ours.step(step, begin_s=0.0, reduce_start_s=0.0, update_start_s=0.0, update_end_s=0.0)
    ours.write()
    spans = Spans.load(ours.path)
    assert all(sorted(spans.steps[step].arrivals.microbatch) == list(range(4 * each)) for step in range(steps))


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "spans").write_text("")
    ours = recorder(tmp_path)
    play(ours, 0)
    with pytest.raises(RunError, match=r"spans/east-1\.jsonl: cannot be written: "):
        ours.write()
