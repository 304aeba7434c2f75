"""What is said about a step."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """A step as all processes together saw it."""

    step: int
    """Counted from 0."""
    loss: float
    """Mean over the step's tokens."""
    norm: float
    """Of all gradients, before clipping."""
    rate: float
    """The learning rate."""
    step_time_s: float
    """From the earliest beginning of any process to the latest end."""
    tokens: int
    utilization: float
    """Share of the slots' time in which they computed."""
    wan_bytes: int
    """Sent between data centers since the run began, by all."""
