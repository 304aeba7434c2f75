"""What came of filling bubbles with prefill: each way of filling, and all of them on the same plan and trace.

Reports read this and nothing else. Times count from the start of the first step.
"""

from dataclasses import dataclass

import numpy as np

from geotrain.action import Kind
from geotrain.simulation.result import Result
from geotrain.timeline import Floats, Ints

ALL_REDUCE, OPTIMIZER = len(Kind), len(Kind) + 1
"""What a slot does at the end of a step, numbered after the kinds of action."""


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Prefill on the slots: columns, one row a piece, ordered by start."""

    slot: Ints
    start_s: Floats
    end_s: Floats
    request: Ints
    """Its id."""
    tokens: Ints
    """New tokens of the request that the piece worked on."""

    def __len__(self) -> int:
        return len(self.slot)


@dataclass(frozen=True, kw_only=True)
class TrainingSpans:
    """Training on the slots: columns, one row an action, ordered by start."""

    slot: Ints
    kind: Ints
    """Values of `Kind`, ALL_REDUCE or OPTIMIZER."""
    stage: Ints
    """Counted through all chunks; the slot's own for what ends a step."""
    microbatch: Ints
    """0 for what ends a step."""
    start_s: Floats
    end_s: Floats

    def __len__(self) -> int:
        return len(self.slot)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one way of filling made of a trace."""

    name: str
    """geotrain, none, reactive, fixed, oracle or dedicated."""
    duration_s: float
    """Time observed for utilization: whole steps."""
    trace_s: float
    """Time in which requests arrived."""
    num_slots: int
    training_utilization: float
    """Busy with training, over slots x duration."""
    gpu_utilization: float
    """Busy with training or prefill."""
    offered_s: float
    """Bubble seconds, all slots."""
    used_s: float
    wasted_s: dict[str, float]
    """By reason: guard, too short, no work, waiting, mispredicted."""
    ttft_s: Floats
    """Of the requests that were done, in order of arrival."""
    done: int
    rejected: int
    failed: int
    reasons: dict[str, int]
    """Why not done."""
    met: int
    """Done within the SLO."""
    tokens: int
    """Prompt tokens prefilled."""
    reused_tokens: int
    """Prompt tokens found as a cached prefix."""
    slowdown: Floats
    """Per training step: its length over that without prefill, minus 1."""
    overruns: int
    """Pieces that ended after training wanted the slot back."""
    decision_s: Floats
    """Controller time per decision, by the wall clock."""
    spans: Spans

    @property
    def arrivals(self) -> int:
        """Requests, however they ended."""
        return self.done + self.rejected + self.failed

    @property
    def goodput_rps(self) -> float:
        """Requests within the SLO, per second; all of them are the rate of the arrivals, one over their mean gap."""
        return (self.arrivals - 1) / self.trace_s * self.slo_attainment if self.trace_s else self.met / self.duration_s

    @property
    def slo_attainment(self) -> float:
        """Share of all arrivals that were done within the SLO."""
        return self.met / self.arrivals if self.arrivals else 0.0

    def ttft(self, q: float) -> float:
        """Quantile of the time to first token of what was done; nan if nothing was."""
        return float(np.quantile(self.ttft_s, q)) if len(self.ttft_s) else float("nan")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A plan, a trace, and every way of filling."""

    result: Result
    """The plan's step without prefill."""
    slo_s: float
    degree: dict[str, int]
    """Slots per instance, by model."""
    models: tuple[str, ...]
    trace: str
    """Its name."""
    rate_rps: float
    """Arrivals per second, after scaling."""
    steps_s: Floats
    """Start of each training step that was played, with our filling."""
    training: TrainingSpans
    """With our filling, of the first few steps."""
    ours: Outcome
    baselines: dict[str, Outcome]
    """none, reactive, fixed, oracle."""
    dedicated: Outcome
    """As many GPUs as the bubbles amount to, doing nothing else."""
