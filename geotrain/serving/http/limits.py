"""What one client may take from the service."""

from dataclasses import dataclass

from geotrain.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of requests; prompts are bounded by the model."""

    max_body_bytes: int = 4 << 20
    """The largest body that is read."""
    max_held_bytes: int = 256 << 20
    """Bodies of all requests under way together."""
    deadline_s: float = 600.0
    """The longest that a request may take, from its first byte to the last of its answer."""

    def __post_init__(self) -> None:
        if self.max_body_bytes < 1:
            raise InputError(f"max_body_bytes: {self.max_body_bytes} must be at least 1")
        if self.max_held_bytes < self.max_body_bytes:
            raise InputError(f"max_held_bytes: {self.max_held_bytes} must be at least {self.max_body_bytes}, one body")
        if not 0 < self.deadline_s <= 86400:
            raise InputError(f"deadline_s: {self.deadline_s} must be above 0 and at most a day")
