"""What could have been done with the bubbles, had everything been known beforehand."""

from dataclasses import replace
from operator import sub

import numpy as np

from geotrain.prefill.fleet import Kind
from geotrain.prefill.request import BLOCK_TOKENS
from geotrain.prefill.trace import Trace
from geotrain.simulation.prefill.oracle import oracle
from geotrain.simulation.prefill.outcome import Outcome
from geotrain.simulation.prefill.scene import Scene
from geotrain.timeline import Floats


def observed(begins_s: list[float], trace_s: float) -> tuple[int, float]:
    """Steps that began and ended while requests arrived, but at least one, and how long they took."""
    steps = max(1, sum(begin_s <= trace_s for begin_s in begins_s) - 1)
    return steps, begins_s[steps]


def hindsight(scene: Scene, trace: Trace, unfilled: Outcome) -> Outcome:
    """The oracle on the same training, undisturbed."""
    times_s, idle, begins_s, busy_s = _capacity(scene, trace.duration_s + scene.settings.slo_s)
    arrival_s = np.array([request.arrival_s for request in trace.requests])
    work_s, shortest_s = _least_work(scene, trace)
    slo_s = scene.settings.slo_s
    found = oracle(
        arrival_s=arrival_s,
        work_s=work_s,
        shortest_s=shortest_s,
        slo_s=slo_s,
        times_s=times_s,
        slots_idle=idle,
    )
    steps, duration_s = observed(begins_s, trace.duration_s)
    offered_s = float(np.interp(duration_s, times_s, np.append(0.0, np.cumsum(idle * np.diff(times_s)))))
    own_s = duration_s * (len(scene.slots) - scene.num_training_slots)
    # The cluster's own prefill GPUs do their share of the work.
    used_s = float(np.interp(duration_s, times_s, found.used_s)) * (1 - own_s / offered_s)
    offered_s -= own_s
    whole_s = scene.num_training_slots * duration_s
    busy = sum(busy_s[:steps]) * scene.plan.cells
    return replace(
        unfilled,
        name="oracle",
        duration_s=duration_s,
        training_utilization=busy / whole_s,
        gpu_utilization=(busy + used_s) / whole_s,
        offered_s=offered_s,
        used_s=used_s,
        wasted_s={"no work": max(0.0, offered_s - used_s)},
        ttft_s=(found.finish_s - arrival_s)[found.in_time],
        done=found.met,
        rejected=len(trace.requests) - found.met,
        reasons={"busy": len(trace.requests) - found.met},
        met=found.met,
        tokens=sum(r.input_tokens for r, met in zip(trace.requests, found.in_time.tolist(), strict=True) if met),
    )


def _capacity(scene: Scene, until_s: float) -> tuple[Floats, Floats, list[float], list[float]]:
    """Moments, idle slots between them, starts of steps, and seconds in which each step's slots of a cell compute."""
    steps, copies = scene.steps, scene.plan.cells
    opens: list[float] = []
    closes: list[float] = []
    begins_s, busy_s = [0.0], []
    last = [0.0] * steps.num_slots
    while begins_s[-1] < until_s:
        begin_s = begins_s[-1]
        step = steps.play(len(begins_s) - 1, begin_s)
        for row, (starts, ends) in enumerate(zip(step.starts_s, step.ends_s, strict=True)):
            opens += [last[row], *(begin_s + end_s for end_s in ends[:-1])]
            closes += [begin_s + start_s for start_s in starts]
            last[row] = begin_s + ends[-1]
        busy_s.append(step.busy_s)
        begins_s.append(begin_s + step.length_s)
    times_s, inverse = np.unique(np.array([*opens, *closes]), return_inverse=True)
    change = np.bincount(inverse, weights=np.repeat([copies, -copies], [len(opens), len(closes)]))
    own = len(scene.slots) - scene.num_training_slots
    return times_s, own + np.maximum(0.0, np.cumsum(change)[:-1]), begins_s, busy_s


def _least_work(scene: Scene, trace: Trace) -> tuple[Floats, Floats]:
    """Slot-seconds, and seconds to the first token, if every prefix ever seen is kept and batching costs nothing."""
    seen: set[int] = set()
    work_s, shortest_s = [], []
    for request in trace.requests:
        kinds = scene.kinds[request.model or scene.models[0].name]
        known = next((i for i, block in enumerate(request.blocks) if block not in seen), len(request.blocks))
        cached = min(known * BLOCK_TOKENS, request.input_tokens - 1)
        seen.update(request.blocks)
        new, batched = request.input_tokens - cached, request.input_tokens < scene.settings.batch_tokens
        alone_s = [kind.time.seconds(new, cached) for kind in kinds]
        saved_s = [kind.time.fixed_s if batched else 0.0 for kind in kinds]
        work_s.append(min(map(sub, alone_s, saved_s)))
        shortest_s.append(min(_shortest_s(scene, kind, new, cached) for kind in kinds))
    return np.array(work_s), np.array(shortest_s)


def _shortest_s(scene: Scene, kind: Kind, new: int, cached: int) -> float:
    """To the first token on an idle instance: its slots work at the same time, but not on the first chunk."""
    parts_s = kind.time.chunks_s(new, cached, scene.settings.chunk_tokens)
    total_s = float(parts_s.sum())
    return max(float(parts_s[0]), total_s / kind.degree) + kind.hand_over_s(new + cached, total_s)
