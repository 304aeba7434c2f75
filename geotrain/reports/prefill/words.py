"""What the reports on prefill say in the same words: figures, ways of filling, bubbles, requests.

Knows Studies and text; knows no terminal, HTML or file.
"""

import math
from dataclasses import dataclass

import numpy as np

from geotrain.reports.words import Figure, count, percent, plan_sentence
from geotrain.simulation.prefill.outcome import Outcome, Study
from geotrain.timeline import Floats
from geotrain.units import format_seconds, plural

WAYS = {
    "none": "none",
    "reactive": "reactive",
    "fixed": "fixed 68%",
    "geotrain": "geotrain",
    "oracle": "oracle",
    "dedicated": "dedicated",
}
WAY_HEADINGS = ["filling", "busy", "goodput", "in SLO", "TTFT p50", "TTFT p99", "slower", "at p99", "overruns"]
WAY_NOTE = (
    "busy: the training's GPUs, while whole steps ran and requests arrived; of dedicated, its own GPUs. slower: the "
    "training step, mean and p99. reactive sees only that a slot is idle now; fixed uses 68% of each bubble; the "
    "oracle knows the future; dedicated are GPUs without training, as many as the bubbles amount to, but enough for "
    "an instance in each data center."
)
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def ways(study: Study) -> list[Outcome]:
    """Every way of filling, and the dedicated GPUs last."""
    every = {**study.baselines, "geotrain": study.ours, "dedicated": study.dedicated}
    return [every[name] for name in WAYS if name in every]


def before(study: Study) -> float:
    """GPU utilization without prefill."""
    none = study.baselines.get("none")
    return study.ours.training_utilization if none is None else none.gpu_utilization


def mean(values: Floats) -> float:
    """nan if there are none."""
    return float(values.mean()) if len(values) else math.nan


def quantile(values: Floats, q: float) -> float:
    """nan if there are none."""
    return float(np.quantile(values, q)) if len(values) else math.nan


def ttft(outcome: Outcome) -> dict[str, float]:
    """Time to first token by quantile."""
    return {name: outcome.ttft(q) for name, q in _QUANTILES.items()}


def way_row(outcome: Outcome) -> list[str]:
    """A way of filling under WAY_HEADINGS."""
    return [
        WAYS[outcome.name],
        percent(outcome.gpu_utilization),
        f"{outcome.goodput_rps:.3g}/s",
        percent(outcome.slo_attainment),
        seconds(outcome.ttft(0.5)),
        seconds(outcome.ttft(0.99)),
        _slower(mean(outcome.slowdown)),
        _slower(quantile(outcome.slowdown, 0.99)),
        str(outcome.overruns),
    ]


def seconds(value: float) -> str:
    """312 ms, or - where there is none."""
    return "-" if math.isnan(value) else format_seconds(value) if value else "0 s"


def _slower(share: float) -> str:
    # + 0.0 makes a rounded -0 a plain 0.
    return "-" if math.isnan(share) else f"{round(share, 4) + 0.0:.2%}"


def title(study: Study) -> str:
    """GPUs 45.0% busy with training, 96.5% with prefill in the bubbles."""
    return f"GPUs {percent(before(study))} busy with training, {percent(study.ours.gpu_utilization)} with prefill"


def sentences(study: Study) -> list[str]:
    """What was played."""
    ours = study.ours
    models = ", ".join(f"{model} ({plural(degree, 'slot')} an instance)" for model, degree in study.degree.items())
    return [
        plan_sentence(study.result.plan),
        f"Prefill of {models} in its bubbles: trace {study.trace} at {study.rate_rps:.4g} requests/s, "
        f"{ours.arrivals:,} requests and {plural(len(study.steps_s), 'training step')} in "
        f"{format_seconds(ours.trace_s)}.",
    ]


def headline(study: Study) -> list[Figure]:
    """The figures people ask for first."""
    ours, ours_ttft, theirs_ttft = study.ours, ttft(study.ours), ttft(study.dedicated)
    return [
        Figure(
            label="GPU utilization",
            value=f"{percent(before(study))} → {percent(ours.gpu_utilization)}",
            note=f"training alone, then with prefill: {plural(_gpus(study, ours), 'GPU')} over "
            f"{format_seconds(ours.duration_s)}, whole steps",
        ),
        Figure(
            label="training slower by",
            value=_slower(mean(ours.slowdown)),
            note=f"mean; p99 {_slower(quantile(ours.slowdown, 0.99))}; {plural(ours.overruns, 'overrun')}",
        ),
        Figure(
            label="time to first token",
            value=seconds(ours_ttft["p50"]),
            note=f"p50; p95 {seconds(ours_ttft['p95'])}, p99 {seconds(ours_ttft['p99'])}",
        ),
        Figure(
            label="against dedicated GPUs",
            value=_times(ours_ttft["p50"], theirs_ttft["p50"], " as long"),
            note=f"p50, there {seconds(theirs_ttft['p50'])}; p99 {_times(ours_ttft['p99'], theirs_ttft['p99'])}, there "
            f"{seconds(theirs_ttft['p99'])}; on {plural(_gpus(study, study.dedicated), 'GPU')} that only prefill, "
            f"bubbles amount to {_bubble_gpus(study):.3g}",
        ),
        Figure(
            label="goodput",
            value=f"{ours.goodput_rps:.4g}/s",
            note=f"of {study.rate_rps:.4g} requests/s; dedicated: {study.dedicated.goodput_rps:.4g}/s",
        ),
        Figure(
            label="SLO attainment",
            value=percent(ours.slo_attainment),
            note=f"of all arrivals have their first token within {format_seconds(study.slo_s)}",
        ),
        Figure(
            label="prefilled",
            value=f"{count(_share(ours.tokens, ours.trace_s))} tokens/s",
            note=f"{count(ours.tokens)} prompt tokens of {format_seconds(ours.trace_s)} of arrivals, "
            f"{count(ours.reused_tokens)} of them found cached",
        ),
        Figure(
            label="time of a decision",
            value=seconds(mean(ours.decision_s)),
            note=f"mean; p99 {seconds(quantile(ours.decision_s, 0.99))}",
        ),
    ]


def _gpus(study: Study, outcome: Outcome) -> int:
    """GPUs whose utilization is told."""
    return outcome.num_slots * study.result.plan.tensor_parallel


def _bubble_gpus(study: Study) -> float:
    """GPUs that would idle as long as there are bubbles."""
    return _share(study.ours.offered_s, study.ours.duration_s) * study.result.plan.tensor_parallel


def _times(ours: float, theirs: float, than: str = "") -> str:
    return "-" if math.isnan(ours) or not theirs > 0 else f"{ours / theirs:.2f}x{than}"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Use:
    """What became of a part of the bubbles."""

    key: str
    """Names its colour."""
    label: str
    letter: str
    time_s: float
    share: float
    """Of all bubble seconds."""


_USES = {
    "used": ("prefill", "prefill", "P"),
    "no work": ("no-work", "no request waiting", "."),
    "waiting": ("waiting", "waiting for other slots", "w"),
    "too short": ("too-short", "too short for a unit", "s"),
    "guard": ("guard", "guard", "g"),
    "mispredicted": ("mispredicted", "mispredicted", "x"),
}


def uses(outcome: Outcome) -> list[Use]:
    """Where the bubble seconds went: prefill, then the known reasons in their order, then others."""
    times_s = {"used": outcome.used_s, **dict.fromkeys(list(_USES)[1:], 0.0), **outcome.wasted_s}
    total_s = max(outcome.offered_s, sum(times_s.values()))
    made = []
    for reason, time_s in times_s.items():
        key, label, letter = _USES.get(reason, ("other", reason, "?"))
        made.append(Use(key=key, label=label, letter=letter, time_s=time_s, share=_share(time_s, total_s)))
    return made


def endings(study: Study) -> list[tuple[str, int, str]]:
    """How the requests ended: how, how many, and which share of all."""
    ours = study.ours
    slo = format_seconds(study.slo_s)
    rows = {
        f"done within {slo}": ours.met,
        "done later": ours.done - ours.met,
        "rejected": ours.rejected,
        "failed": ours.failed,
    }
    return [(how, number, percent(_share(number, ours.arrivals))) for how, number in rows.items()]


def reasons(study: Study) -> list[tuple[str, int]]:
    """Why requests were rejected or failed, commonest first."""
    return sorted(study.ours.reasons.items(), key=lambda entry: (-entry[1], entry[0]))
