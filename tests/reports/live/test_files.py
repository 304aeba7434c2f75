from pathlib import Path

import pytest

from geotrain.action import Kind
from geotrain.errors import RunError
from geotrain.reports.live import prefilled, trained
from geotrain.seating import Seating
from geotrain.serving.journal import Journal
from geotrain.serving.messages import Report
from geotrain.training.recorder import Recorder
from tests.reports.live.sample import PLAN


def record(run: Path, steps: int) -> None:
    """Both processes; the second one is a little late, and its clock is said to be off by an hour."""
    for late, seat in enumerate(Seating(PLAN).seats):
        recorder = Recorder(run, seat, plan=PLAN, pooled=[], clock_offset_s=3600.0 * late, steps=range(steps))
        for step in range(steps):
            begin_s = 1000.0 + 2 * step + 0.1 * late
            recorder.action(Kind.F, seat.stage, 0, begin_s + 0.25, begin_s + 0.5)
            recorder.step(
                step,
                begin_s=begin_s,
                reduce_start_s=begin_s + 1,
                update_start_s=begin_s + 1,
                update_end_s=begin_s + 1.5,
            )
        recorder.write()


def test_training_and_prefill_are_on_one_clock(tmp_path: Path):
    record(tmp_path / "run", 3)
    training, edges_s, trained_s = trained(PLAN, tmp_path / "run", zero_s=1002.0, skip=1)
    assert edges_s == pytest.approx([0.0, 2.0, 3.6])
    assert trained_s == pytest.approx([0.5, 0.5])
    assert training.slot.tolist() == [0, 1, 0, 1]
    assert training.start_s == pytest.approx([0.25, 0.35, 2.25, 2.35])

    journal = Journal(tmp_path / "prefill.jsonl")
    for slot, at_s in (("south-0", 1003.0), ("east-0", 1002.6)):
        pieces = ((at_s, at_s + 0.25), (at_s + 0.5, at_s + 0.75))
        journal.worked(slot, Report(booking=7, place=0, chunk=0, what="done", now_s=at_s + 1, pieces=pieces))
    journal.close()
    prefill, overruns = prefilled(PLAN, tmp_path / "prefill.jsonl", zero_s=1002.0)
    assert prefill.slot.tolist() == [0, 1, 0, 1]
    assert prefill.start_s == pytest.approx([0.6, 1.0, 1.1, 1.5])
    assert prefill.end_s == pytest.approx([0.85, 1.25, 1.35, 1.75])
    assert overruns == 0


def test_a_run_that_ended_too_soon_is_an_error(tmp_path: Path):
    record(tmp_path, 2)
    with pytest.raises(RunError, match="no more than 2 steps were recorded"):
        trained(PLAN, tmp_path, zero_s=0.0, skip=2)
