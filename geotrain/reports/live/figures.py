"""Training with prefill in its bubbles as it was seen and as it was simulated: the same figures of both."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geotrain.plan import Plan
from geotrain.prefill.trace import Trace
from geotrain.reports.prefill.charts import during
from geotrain.simulation.prefill.outcome import Spans, Study, TrainingSpans
from geotrain.timeline import Floats

_NOTHING_S = 1e-6
_STUDENT_95 = (12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
_NORMAL_95 = 1.96
"""Standard errors of a mean within which it lies with 95%: of 2, 3, ... samples, and of many."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """When requests come: for a while, then none for a while, from 0 on."""

    on_s: float
    off_s: float
    rounds: int

    @property
    def duration_s(self) -> float:
        """Of all rounds."""
        return (self.on_s + self.off_s) * self.rounds

    def paused(self, trace: Trace) -> Trace:
        """The trace with pauses."""
        first = trace.repeated(self.on_s * self.rounds)
        moved = (
            replace(one, arrival_s=one.arrival_s + one.arrival_s // self.on_s * self.off_s) for one in first.requests
        )
        return replace(trace, requests=tuple(moved))

    def loaded(self, edges_s: Floats) -> NDArray[np.bool_]:
        """Steps during all of which requests come."""
        start_s, end_s = edges_s[:-1], edges_s[1:]
        since_s = start_s % (self.on_s + self.off_s)
        inside = (start_s >= 0) & (start_s < self.duration_s)
        return np.asarray(inside & (since_s + end_s - start_s <= self.on_s))


@dataclass(frozen=True, kw_only=True)
class Side:
    """One run of the trace. Times count from the first request."""

    blocks: Blocks
    edges_s: Floats
    """Starts of the steps, and the end of the last one."""
    training_s: Floats
    """By step: what all slots trained."""
    num_slots: int
    prefill: Spans
    ttft_s: Floats
    """Of the requests that were answered."""
    rejected: int
    failed: int
    overruns: int

    @cached_property
    def lengths_s(self) -> Floats:
        """Of the steps."""
        return np.diff(self.edges_s)

    @cached_property
    def prefill_s(self) -> Floats:
        """By step: what all slots prefilled."""
        return during(self.prefill.start_s, self.prefill.end_s, self.edges_s)

    @cached_property
    def loaded(self) -> NDArray[np.bool_]:
        """Steps under load."""
        return self.blocks.loaded(self.edges_s)

    @cached_property
    def quiet(self) -> NDArray[np.bool_]:
        """Other steps, without any prefill."""
        return np.asarray((self.prefill_s < _NOTHING_S) & ~self.loaded)

    @property
    def before(self) -> float:
        """Share of the slots' time that is busy in quiet steps."""
        return self._busy(self.training_s, self.quiet)

    @property
    def after(self) -> float:
        """The same under load."""
        return self._busy(self.training_s + self.prefill_s, self.loaded)

    def _busy(self, time_s: Floats, steps: NDArray[np.bool_]) -> float:
        whole_s = float(self.lengths_s[steps].sum()) * self.num_slots
        return float(time_s[steps].sum()) / whole_s if whole_s else math.nan

    @property
    def slowdown(self) -> tuple[float, float]:
        """By how much steps are longer under load than quiet ones before and after; how far that may be off, with 95%.

        Each round of requests is compared by itself, for a machine changes its pace in the course of minutes.
        """
        number = self.edges_s[:-1] // (self.blocks.on_s + self.blocks.off_s)
        ratios = []
        for each in np.unique(number[self.loaded]):
            near = self.quiet & ((number == each) | (number == each - 1))
            if near.any():
                loaded_s = self.lengths_s[self.loaded & (number == each)]
                ratios.append(float(loaded_s.mean() / self.lengths_s[near].mean()))
        if len(ratios) < 2:
            return math.nan, math.nan
        freedom = len(ratios) - 1
        errors = _STUDENT_95[freedom - 1] if freedom <= len(_STUDENT_95) else _NORMAL_95 * (1 + 1.22 / freedom)
        return float(np.mean(ratios)) - 1.0, errors * float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))

    @property
    def arrivals(self) -> int:
        """Requests, however they ended."""
        return len(self.ttft_s) + self.rejected + self.failed

    @property
    def turned_away(self) -> float:
        """Share of all requests."""
        return self.rejected / self.arrivals if self.arrivals else math.nan

    def ttft(self, q: float) -> float:
        """Quantile of the time to first token."""
        return float(np.quantile(self.ttft_s, q)) if len(self.ttft_s) else math.nan

    def json(self) -> dict[str, Any]:
        """Its names are a contract."""
        slower, margin = self.slowdown
        return {
            "gpu_utilization_before": self.before,
            "gpu_utilization_after": self.after,
            "ttft_s": {"p50": self.ttft(0.5), "p99": self.ttft(0.99)},
            "training_slowdown": {"mean": slower, "margin_95": margin},
            "step_s": {
                "quiet": self.lengths_s[self.quiet].tolist(),
                "loaded": self.lengths_s[self.loaded].tolist(),
            },
            "requests": {"done": len(self.ttft_s), "rejected": self.rejected, "failed": self.failed},
            "overruns": self.overruns,
        }


@dataclass(frozen=True, kw_only=True)
class Live:
    """All that the page tells."""

    plan: Plan
    on: str
    """testbed or local."""
    trace: str
    rate_rps: float
    most_tokens: int
    """Longer prompts were cut."""
    like: str
    """Whose prefill times were emulated."""
    slo_s: float
    training: TrainingSpans
    """As measured."""
    measured: Side
    simulated: Side

    def json(self) -> dict[str, Any]:
        """The object that `geotrain demo live --json` prints."""
        return {
            "on": self.on,
            "trace": self.trace,
            "rate_rps": self.rate_rps,
            "slo_s": self.slo_s,
            "like": self.like,
            "measured": self.measured.json(),
            "simulated": self.simulated.json(),
        }


def simulated(study: Study, blocks: Blocks) -> Side:
    """What the study foresaw."""
    ours = study.ours
    steps = int(np.searchsorted(study.steps_s, ours.duration_s))
    each_s = ours.training_utilization * ours.num_slots * ours.duration_s / max(1, steps)
    return Side(
        blocks=blocks,
        edges_s=study.steps_s,
        training_s=np.full(len(study.steps_s) - 1, each_s),
        num_slots=ours.num_slots,
        prefill=ours.spans,
        ttft_s=ours.ttft_s,
        rejected=ours.rejected,
        failed=ours.failed,
        overruns=ours.overruns,
    )
