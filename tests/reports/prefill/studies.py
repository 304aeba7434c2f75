"""Studies made by hand: the sample step again and again, with pieces of prefill in its idle windows."""

from dataclasses import replace

import numpy as np

from geotrain.simulation.prefill.outcome import ALL_REDUCE, OPTIMIZER, Outcome, Spans, Study, TrainingSpans
from geotrain.simulation.result import Result
from tests.reports import sample

NOTHING = np.array([], dtype=np.int64)
NO_SPANS = Spans(
    slot=NOTHING, start_s=NOTHING.astype(float), end_s=NOTHING.astype(float), request=NOTHING, tokens=NOTHING
)
NO_TRAINING = TrainingSpans(
    slot=NOTHING, kind=NOTHING, stage=NOTHING, microbatch=NOTHING,
    start_s=NOTHING.astype(float), end_s=NOTHING.astype(float),
)  # fmt: skip
GUARD_S = 0.001


def study(*, steps: int = 30, known: int = 6, result: Result | None = None, requests: int = 900) -> Study:
    """Bubbles are filled but for a guard; the first `known` steps of training are kept."""
    result = result or sample.small()
    step_s = result.step_time_s
    training = _training(result, known)
    spans, offered_s = _filling(result, _training(result, steps), steps)
    ours = outcome("geotrain", result, steps, spans, offered_s, requests=requests)
    used = {"reactive": 0.5, "fixed": 0.68, "oracle": 1.02}
    baselines = {"none": nothing(result, steps, offered_s, requests)} | {
        name: outcome(name, result, steps, replace(spans, end_s=spans.start_s + share * (spans.end_s - spans.start_s)),
                      offered_s, requests=requests, slower=0.02 if name == "reactive" else 0.0)
        for name, share in used.items()
    }  # fmt: skip
    dedicated = replace(ours, name="dedicated", training_utilization=0.0, ttft_s=ours.ttft_s / 1.2, num_slots=7,
                        gpu_utilization=0.9, slowdown=NOTHING.astype(float), decision_s=NOTHING.astype(float),
                        spans=NO_SPANS)  # fmt: skip
    return Study(
        result=result,
        slo_s=2.0,
        degree={"llama-3.1-8b": 2},
        models=("llama-3.1-8b",),
        trace="made-up",
        rate_rps=requests / ours.duration_s,
        steps_s=np.arange(steps, dtype=np.float64) * step_s,
        training=training,
        ours=ours,
        baselines=baselines,
        dedicated=dedicated,
    )


def outcome(
    name: str, result: Result, steps: int, spans: Spans, offered_s: float, *, requests: int, slower: float = 0.0
) -> Outcome:
    luck = np.random.default_rng(len(name))
    duration_s, num_slots = steps * result.step_time_s, result.plan.num_gpus
    used_s = float((spans.end_s - spans.start_s).sum())
    ttft_s = luck.lognormal(-1.0, 0.7, requests * 9 // 10)
    alone = result.gpu_utilization
    return Outcome(
        name=name,
        duration_s=duration_s,
        trace_s=duration_s,
        num_slots=num_slots,
        training_utilization=alone,
        gpu_utilization=alone + used_s / num_slots / duration_s,
        offered_s=offered_s,
        used_s=used_s,
        wasted_s={"guard": 0.6 * (offered_s - used_s), "no work": 0.4 * (offered_s - used_s)},
        ttft_s=ttft_s,
        done=len(ttft_s),
        rejected=requests - len(ttft_s) - 2,
        failed=2,
        reasons={"would miss the SLO": requests - len(ttft_s) - 2, "its slot died": 2},
        met=int((ttft_s <= 2.0).sum()),
        tokens=int(spans.tokens.sum()),
        reused_tokens=512 * requests,
        slowdown=np.full(steps, slower) + np.where(np.arange(steps) == 3, 0.004, 0.0),
        overruns=4,
        decision_s=luck.lognormal(-10.5, 0.5, 3 * requests),
        spans=spans,
    )


def nothing(result: Result, steps: int, offered_s: float, requests: int) -> Outcome:
    made = outcome("none", result, steps, NO_SPANS, offered_s, requests=requests)
    return replace(made, ttft_s=NOTHING.astype(float), done=0, met=0, rejected=requests, failed=0, overruns=0,
                   reasons={"no filling": requests}, wasted_s={"no work": offered_s}, reused_tokens=0,
                   slowdown=np.zeros(steps), decision_s=NOTHING.astype(float))  # fmt: skip


def _training(result: Result, steps: int) -> TrainingSpans:
    timeline = result.timeline
    rows = []
    for step in range(steps):
        later = step * result.step_time_s
        columns = (timeline.actions.kind, timeline.actions.stage, timeline.actions.microbatch)
        times = (timeline.actions.start_s + later, timeline.actions.end_s + later)
        rows += list(
            zip(*times, timeline.slot_of_action.tolist(), *(column.tolist() for column in columns), strict=True)
        )
        for slot in range(timeline.num_pipelines * timeline.num_stages):
            stage = slot % timeline.num_stages
            edges = [
                float(edge[stage]) + later
                for edge in (timeline.reduce_start_s, timeline.update_start_s, timeline.update_end_s)
            ]
            rows += [(edges[0], edges[1], slot, ALL_REDUCE, stage, 0), (edges[1], edges[2], slot, OPTIMIZER, stage, 0)]
    table = np.array(sorted(rows))
    whole = table[:, 2:].astype(np.int64)
    return TrainingSpans(slot=whole[:, 0], kind=whole[:, 1], stage=whole[:, 2], microbatch=whole[:, 3],
                         start_s=table[:, 0], end_s=table[:, 1])  # fmt: skip


def _filling(result: Result, training: TrainingSpans, steps: int) -> tuple[Spans, float]:
    """Two pieces in every window, and the seconds of all windows."""
    rows, offered_s = [], 0.0
    for slot in np.unique(training.slot).tolist():
        mine = training.slot == slot
        ends = [0.0, *training.end_s[mine].tolist()]
        starts = [*training.start_s[mine].tolist(), steps * result.step_time_s]
        for from_s, to_s in zip(ends, starts, strict=True):
            offered_s += max(0.0, to_s - from_s)
            if to_s - from_s > 3 * GUARD_S:
                half_s = (to_s - from_s - GUARD_S) / 2
                rows += [(from_s, from_s + half_s, slot), (from_s + half_s, to_s - GUARD_S, slot)]
    table = np.array(sorted(rows))
    number = np.arange(len(table))
    return Spans(slot=table[:, 2].astype(np.int64), start_s=table[:, 0], end_s=table[:, 1], request=number // 3,
                 tokens=np.full(len(table), 256)), offered_s  # fmt: skip
