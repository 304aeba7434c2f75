"""A plan and a trace: prefill in the bubbles our way, in others' ways, and on dedicated GPUs."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from geotrain import interrupts
from geotrain.errors import InputError
from geotrain.prefill.booking import Command
from geotrain.prefill.controller import Controller
from geotrain.prefill.fleet import Slot
from geotrain.prefill.forecast import Forecast
from geotrain.prefill.request import End
from geotrain.prefill.trace import Trace
from geotrain.simulation.prefill.hindsight import hindsight, observed
from geotrain.simulation.prefill.outcome import Outcome, Spans, Study
from geotrain.simulation.prefill.player import Player, Policy, Sight
from geotrain.simulation.prefill.rivals import Blind, FixedShare, Reactive, Watching
from geotrain.simulation.prefill.scene import Scene
from geotrain.simulation.prefill.training import Training

FIXED_SHARE = 0.68
"""What a published system for batch jobs uses of each bubble."""

Progress = Callable[[str, float], None]


def study(scene: Scene, trace: Trace, *, rivals: bool = True, progress: Progress | None = None) -> Study:
    """Play all ways of filling; without `rivals` only ours and the dedicated GPUs.

    Ctrl-C while rivals are played leaves out those that have not come to their end.
    """
    known = {model.name for model in scene.models}
    for request in trace.requests:
        if request.model and request.model not in known:
            raise InputError(f"{trace.name} asks for the model {request.model!r}, which is not served")
    # Before ours, so that compiling the controller is no part of the time of our decisions.
    dedicated = _dedicated(scene, trace, progress)
    ours, player = _ours(scene, trace, progress)
    baselines: dict[str, Outcome] = {}
    if rivals:
        try:
            baselines["none"] = _none(ours, trace)
            baselines["reactive"] = _reactive(scene, trace, progress)
            baselines["fixed"] = _fixed(scene, trace, progress)
            baselines["oracle"] = hindsight(scene, trace, baselines["none"])
        except (KeyboardInterrupt, SystemError) as error:
            if not interrupts.is_interrupt(error):
                raise
            interrupts.remember()
    return Study(
        result=scene.rehearsed[1],
        slo_s=scene.settings.slo_s,
        degree={name: max(kind.degree for kind in kinds if not kind.together) for name, kinds in scene.kinds.items()},
        models=tuple(model.name for model in scene.models),
        trace=trace.name,
        rate_rps=trace.rate_rps,
        steps_s=np.array(player.training.begins_s),
        training=player.training.spans,
        ours=ours,
        baselines=baselines,
        dedicated=dedicated,
    )


def _ours(scene: Scene, trace: Trace, progress: Progress | None) -> tuple[Outcome, Player]:
    forecast = scene.forecast(guard_s=scene.settings.guard_s)
    policy = Controller(scene.slots, scene.kinds, forecast, scene.settings)
    return _played("geotrain", scene, trace, scene.slots, forecast, policy, Watching(forecast), progress)


def _fixed(scene: Scene, trace: Trace, progress: Progress | None) -> Outcome:
    forecast = scene.forecast(fill=FIXED_SHARE)
    policy = Controller(scene.slots, scene.kinds, forecast, scene.settings)
    sight = FixedShare(forecast, FIXED_SHARE)
    return _played("fixed", scene, trace, scene.slots, forecast, policy, sight, progress)[0]


def _reactive(scene: Scene, trace: Trace, progress: Progress | None) -> Outcome:
    forecast = scene.forecast()
    policy = Reactive(scene.kinds, scene.settings)
    return _played("reactive", scene, trace, scene.slots, forecast, policy, Blind(), progress, ask=policy.ask)[0]


def _dedicated(scene: Scene, trace: Trace, progress: Progress | None) -> Outcome:
    """The same controller on slots of its own, which are nobody's last resort."""
    forecast, slots = scene.forecast(), scene.equivalent
    kinds = {
        name: [replace(kind, like=replace(kind.like, dedicated=False)) for kind in each]
        for name, each in scene.instances(slots, scene.degree).items()
    }
    policy = Controller(slots, kinds, forecast, scene.settings)
    return _played("dedicated", replace(scene, deaths=()), trace, slots, forecast, policy, Blind(), progress)[0]


def _played(
    name: str,
    scene: Scene,
    trace: Trace,
    slots: Sequence[Slot],
    forecast: Forecast,
    policy: Policy,
    sight: Sight,
    progress: Progress | None,
    *,
    ask: Callable[[int, float], list[Command]] | None = None,
) -> tuple[Outcome, Player]:
    player = Player(
        Training(scene.steps, forecast),
        slots,
        policy,
        sight,
        pace=scene.pace,
        clock=scene.clock,
        ask=ask,
        deaths=scene.deaths,
        progress=None if progress is None else lambda share: progress(name, share),
    )
    player.play(trace.requests)
    return _outcome(name, scene, trace, player, slots), player


def _outcome(name: str, scene: Scene, trace: Trace, player: Player, slots: Sequence[Slot]) -> Outcome:
    training = player.training
    steps, duration_s = observed(training.begins_s, trace.duration_s)
    apart = all(slot.dedicated for slot in slots)
    num_slots = len(slots) if apart else scene.num_training_slots
    whole_s, copies = num_slots * duration_s, 0 if apart else scene.plan.cells
    busy_s, taken_s = sum(training.busy_s[:steps]) * copies, sum(training.taken_s[:steps]) * copies
    spans = player.spans
    inside = np.maximum(0.0, np.minimum(spans.end_s, duration_s) - spans.start_s)
    used_s = float(inside[spans.slot < num_slots].sum())
    offered_s = whole_s - taken_s
    wasted_s = player.wasted_s(num_slots, duration_s)
    wasted_s["no work"] = max(0.0, offered_s - used_s - sum(wasted_s.values()))
    ended = [(request, *player.ends[request.id]) for request in trace.requests]
    ttft_s = np.array([at_s - request.arrival_s for request, end, _, at_s in ended if end == End.DONE])
    number = Counter(end for _, end, _, _ in ended)
    return Outcome(
        name=name,
        duration_s=duration_s,
        trace_s=trace.duration_s,
        num_slots=num_slots,
        training_utilization=busy_s / whole_s,
        gpu_utilization=(busy_s + used_s) / whole_s,
        offered_s=offered_s,
        used_s=used_s,
        wasted_s=wasted_s,
        ttft_s=ttft_s,
        done=number[End.DONE],
        rejected=number[End.REJECTED],
        failed=number[End.FAILED],
        reasons=dict(Counter(reason for _, end, reason, _ in ended if end != End.DONE)),
        met=int((ttft_s <= scene.settings.slo_s).sum()),
        tokens=player.tokens,
        reused_tokens=player.reused_tokens,
        slowdown=np.zeros(0) if apart else np.array(training.slowdown),
        overruns=player.overruns,
        decision_s=np.array(player.decision_s),
        spans=spans,
    )


def _none(ours: Outcome, trace: Trace) -> Outcome:
    nothing = np.zeros(0)
    return replace(
        ours,
        name="none",
        gpu_utilization=ours.training_utilization,
        used_s=0.0,
        wasted_s={"no work": ours.offered_s},
        ttft_s=nothing,
        done=0,
        rejected=len(trace.requests),
        failed=0,
        reasons={"not served": len(trace.requests)},
        met=0,
        tokens=0,
        reused_tokens=0,
        slowdown=np.zeros(len(ours.slowdown)),
        overruns=0,
        decision_s=nothing,
        spans=Spans(
            slot=np.zeros(0, dtype=np.int64),
            start_s=nothing,
            end_s=nothing,
            request=np.zeros(0, dtype=np.int64),
            tokens=np.zeros(0, dtype=np.int64),
        ),
    )
