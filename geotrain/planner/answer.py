"""What the planner found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from geotrain.cluster import Cluster
from geotrain.planner.ask import Ask, Goal
from geotrain.simulation import Result
from geotrain.workload import Job

Ending = Literal["proven", "budget", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A plan that was simulated. Reports read `result`; its `plan` is what would be written to a file."""

    result: Result

    @property
    def s_per_token(self) -> float:
        """Seconds of training per token."""
        return self.result.step_time_s / self.result.plan.tokens_per_step

    @property
    def cost_per_token(self) -> float:
        """GPUs and egress."""
        return self.result.cost_per_billion_tokens / 1e9

    def score(self, goal: Goal) -> tuple[float, float]:
        """Smaller is better; the other goal decides between equals."""
        both = self.s_per_token, self.cost_per_token
        return both if goal == "time" else both[::-1]

    def meets(self, ask: Ask) -> bool:
        """Whether deadline and budget are kept."""
        return self.s_per_token <= ask.most_s_per_token and self.cost_per_token <= ask.most_cost_per_token


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a search has come."""

    evaluations: int
    elapsed_s: float
    best: Scored | None
    gap: float
    """No layout considered so far can be better than the best by more than this share; infinite while there is none."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The best plan found, what else was tried, and how far from the best possible it can be."""

    ask: Ask
    best: Scored
    published: Scored | None
    """What the published algorithm picks; None where it finds nothing that fits."""
    others: tuple[Scored, ...]
    """Of every other kind (other data centers, or data parallel across them) the best plan that was simulated; best
    first."""
    frontier: tuple[Scored, ...]
    """Of everything simulated, what nothing else beats in both time and cost; fastest first."""
    evaluations: int
    """Plans simulated."""
    considered: int
    """Layouts whose floor was computed."""
    search_s: float
    gap: float
    """No plan with stages placed in a way that was tried can be better by more than this share: layouts simulated as
    `geotrain simulate` does are not, and all others, however they deal layers to stages, have a bound that no schedule
    with one chunk of layers per stage beats."""
    ending: Ending


Find = Callable[[Cluster, Job, Ask], Answer]
"""Somebody who answers questions: `find_plan`, or the same with a progress line."""
