"""What a simulated step comes to: the figures people ask for, computed from plan and Timeline."""

from dataclasses import dataclass

from geotrain.plan import Plan, Sharing
from geotrain.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class LinkUse:
    """One direction between two data centers during a step, all cells together."""

    source: str
    target: str
    size_bytes: float
    busy_fraction: float
    """Share of the step in which at least one transfer is on the wire."""
    rate: float
    """Bytes per second that one pair gets."""
    connections: int
    cost: float
    """Egress price of the bytes."""


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Peak memory of one GPU of a stage."""

    static_bytes: float
    """Weights, gradients, optimizer state."""
    activations_bytes: float
    """Held for microbatches in flight, at the peak."""
    workspace_bytes: float
    """For the microbatch being worked on."""
    in_flight: float
    """Most microbatches whose forward has begun and whose backward has not ended."""
    limit_bytes: float
    """What training may use: without the reserve, and the room left to prefill."""

    @property
    def total_bytes(self) -> float:
        """What the GPU must have."""
        return self.static_bytes + self.activations_bytes + self.workspace_bytes


@dataclass(frozen=True, kw_only=True)
class TimeShare:
    """Where the slots' time went, as shares of all slots x step; they add up to 1."""

    forward: float
    recompute: float
    backward: float
    optimizer: float
    all_reduce: float
    wan: float
    """Idle, waiting for something that is queued for or crossing the WAN."""
    fabric: float
    """Idle, waiting for something inside the data center."""
    pipeline: float
    """Idle because the neighbours have not got there yet: fill, drain, imbalance."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The best any schedule could do on these resources, and what it is made of."""

    total_s: float
    binding: str
    """The term that is largest, in words."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What one idea of the `auto` search brought."""

    idea: str
    step_s: float
    """The best step once it had been tried."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A step, in figures. Reports read this and nothing else."""

    plan: Plan
    timeline: Timeline
    sharing: list[Sharing | None]
    """Per boundary of slot stages: how its transfers share the WAN; None inside a data center."""
    bound: Bound
    step_time_s: float
    gpu_utilization: float
    """Busy GPU time over GPUs x step."""
    mfu: float
    """Model FLOPs (no recompute) over peak x GPUs x step."""
    tokens_per_s: float
    memory: list[StageMemory]
    links: list[LinkUse]
    shares: TimeShare
    gpu_cost: float
    """GPU price of a step, whole GPUs in use."""
    egress_cost: float
    gains: tuple[Gain, ...] = ()
    """How the `auto` search came to its schedule, idea by idea."""

    @property
    def bubble_fraction(self) -> float:
        """Share of GPU time without work."""
        return 1 - self.gpu_utilization

    @property
    def step_over_bound(self) -> float:
        """1 is perfect."""
        return self.step_time_s / self.bound.total_s if self.bound.total_s > 0 else 1.0

    @property
    def cost_per_billion_tokens(self) -> float:
        """GPUs and egress."""
        return (self.gpu_cost + self.egress_cost) / self.plan.tokens_per_step * 1e9
