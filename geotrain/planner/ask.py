"""What is wanted of a plan, and how long to look for it."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from geotrain.errors import InputError
from geotrain.plan import ScheduleName
from geotrain.prefill.fleet import whole_model_bytes
from geotrain.prefill.settings import Settings
from geotrain.workload import Model

Goal = Literal["time", "cost"]
Across = Literal["any", "pipeline", "data"]
GOALS: tuple[Goal, ...] = ("time", "cost")
EVALUATIONS = 300
"""Most plans that a search simulates, unless it is told how many or how long."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question to the planner. `deadline_s` and `max_cost` speak of training on that many `tokens`."""

    goal: Goal = "time"
    """time: most tokens per second; cost: least money per token."""
    tokens: float = 0.0
    deadline_s: float = math.inf
    """Slower plans do not count."""
    max_cost: float = math.inf
    """Dearer plans do not count."""
    across: Across = "any"
    """What may cross the WAN: activations between stages (pipeline), gradients between whole pipelines (data)."""
    stages: int | None = None
    """Only this number of stages; otherwise it is searched."""
    schedule: ScheduleName = "auto"
    leave_room_for: Model | None = None
    """Training leaves every slot room for prefill of this model."""
    evaluations: int | None = None
    """Most plans that are simulated; None: as many as `seconds` allow, or else `EVALUATIONS`."""
    seconds: float = math.inf
    """Longest search, by the wall clock; the answer then depends on the machine."""
    tolerance: float = 0.003
    """The search ends when no plan can be better by more than this share."""

    def __post_init__(self) -> None:
        if self.schedule == "interleaved":
            raise InputError(
                "schedule is 'interleaved', which the planner does not search: choose another, or write "
                "`schedule: interleaved` and `interleave: 2` into a plan file"
            )

    @property
    def most_s_per_token(self) -> float:
        """The deadline, per token."""
        return self.deadline_s / self.tokens if self.tokens else math.inf

    @property
    def most_cost_per_token(self) -> float:
        """The budget, per token."""
        return self.max_cost / self.tokens if self.tokens else math.inf

    @property
    def most_evaluations(self) -> float:
        """Plans that may be simulated."""
        if self.evaluations is not None:
            return self.evaluations
        return EVALUATIONS if math.isinf(self.seconds) else math.inf

    def shortened(self, parts: int) -> "Ask":
        """Return the same question for a search of one part of the time and the simulations."""
        most = self.most_evaluations
        evaluations = None if math.isinf(most) else max(1, int(most) // parts)
        return replace(self, evaluations=evaluations, seconds=self.seconds / parts)

    def over(self, s_per_token: float, cost_per_token: float) -> float:
        """Return the larger share of deadline and budget that a plan takes; above 1 it misses one of them."""
        limits = (s_per_token, self.most_s_per_token), (cost_per_token, self.most_cost_per_token)
        return max(value / limit if limit else (math.inf if value else 0.0) for value, limit in limits)

    @property
    def has_limits(self) -> bool:
        """Whether there is a deadline or a budget."""
        return math.isfinite(self.most_s_per_token) or math.isfinite(self.most_cost_per_token)

    @property
    def is_limited(self) -> bool:
        """Whether a deadline limits the least cost, or a budget the least time."""
        return math.isfinite(self.most_s_per_token if self.goal == "cost" else self.most_cost_per_token)

    def prefill_room_bytes(self, tensor_parallel: int) -> float:
        """Memory that each GPU of a slot of so many leaves to prefill."""
        if self.leave_room_for is None:
            return 0.0
        return whole_model_bytes(self.leave_room_for, chunk_tokens=Settings().chunk_tokens) / tensor_parallel
