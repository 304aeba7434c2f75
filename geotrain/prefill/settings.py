"""What an operator may choose about prefill in bubbles."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and margins; the defaults suit models of some billion weights on data-center GPUs."""

    slo_s: float = 2.0
    """Time to first token that a request may take; whoever would miss it is turned away at once."""
    degree: int | None = None
    """Slots per instance; None: as few as memory allows."""
    guard_s: float = 0.0002
    """Least time left free before training is expected back; drift makes it larger."""
    guard_quantile: float = 0.75
    """Share of bubbles that end no earlier than the guard allows for."""
    time_quantile: float = 0.95
    """Quantile of prefill time that admission counts with."""
    chunk_tokens: int = 2048
    """Longest run of tokens worked on at a time."""
    batch_tokens: int = 1024
    """Short prompts are batched up to this many tokens."""
    suspension_s: float = 5.0
    """Longest time between a request's first and last piece."""


LIVE = Settings(guard_s=0.002, guard_quantile=0.97)
"""For real processes, whose windows end less predictably than simulated ones."""
