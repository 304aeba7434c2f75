"""Runs made from a simulated step: what every process would have seen of it, on a clock of its own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from geotrain.action import Kind
from geotrain.plan import Plan
from geotrain.seating import Seat, Seating
from geotrain.simulation import rehearse, run
from geotrain.timeline import Timeline
from geotrain.training.recorder import Recorder
from geotrain.training.recording import Recording


def simulated(plan: Plan) -> Recording:
    return Recording.of(*rehearse(*run(plan)))


def record(
    recording: Recording,
    directory: Path,
    *,
    stretch: Sequence[float] = (1.0,),
    seed: int = 0,
    device: str | None = None,
) -> None:
    """The simulated step again and again, each so much slower; every process writes its spans."""
    (_, timeline), random = recording.steps[0], np.random.default_rng(seed)
    for seat in Seating(recording.plan).seats:
        offset_s = float(random.uniform(-1000, 1000))
        recorder = Recorder(
            directory,
            seat,
            plan=recording.plan,
            pooled=recording.pooled,
            clock_offset_s=offset_s,
            steps=range(len(stretch)),
            device=device,
        )
        begin_s = 5000.0
        for step, factor in enumerate(stretch):
            _play(recorder, seat, timeline, step, begin_s - offset_s, factor)
            begin_s += timeline.step_time_s * factor
        recorder.write()


def _play(recorder: Recorder, seat: Seat, timeline: Timeline, step: int, begin_s: float, factor: float) -> None:
    """What the process of that seat sees; pipelines that were simulated as one do the same."""
    done, moved = timeline.actions, timeline.transfers
    pipeline = seat.pipeline % timeline.num_pipelines

    def at(time_s: float) -> float:
        return begin_s + factor * float(time_s)

    for row in np.flatnonzero((done.pipeline == pipeline) & (done.stage % timeline.num_stages == seat.stage)):
        kind, stage, microbatch = Kind(int(done.kind[row])), int(done.stage[row]), int(done.microbatch[row])
        recorder.action(kind, stage, microbatch, at(done.start_s[row]), at(done.end_s[row]))
        sent = (moved.pipeline == pipeline) & (moved.stage == stage) & (moved.microbatch == microbatch)
        sent &= moved.backward if kind in (Kind.B, Kind.I) else ~moved.backward
        if kind in (Kind.F, Kind.B, Kind.I) and sent.any():
            recorder.sent((step, kind is not Kind.F, stage, microbatch), at(done.end_s[row]))
    for row in np.flatnonzero((moved.pipeline == pipeline) & (moved.target == seat.stage)):
        parcel = (step, bool(moved.backward[row]), int(moved.stage[row]), int(moved.microbatch[row]))
        recorder.arrived(parcel, at(moved.arrive_s[row]))
    recorder.step(
        step,
        begin_s=begin_s,
        reduce_start_s=at(timeline.reduce_start_s[seat.stage]),
        update_start_s=at(timeline.update_start_s[seat.stage]),
        update_end_s=at(timeline.update_end_s[seat.stage]),
    )
