"""A prompt that somebody wants prefilled, and how that ended."""

from dataclasses import dataclass
from enum import StrEnum

BLOCK_TOKENS = 512
"""Tokens of a prefix block, the grain at which prompts are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt."""

    id: int
    arrival_s: float
    input_tokens: int
    output_tokens: int = 0
    model: str = ""
    """Name of the model asked for; empty means the only one."""
    tenant: str = ""
    priority: int = 0
    """Each level weighs four times the one below."""
    blocks: tuple[int, ...] = ()
    """Hashes of its leading blocks; equal hashes are equal prefixes."""


class End(StrEnum):
    """How a request ends, exactly once."""

    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"
