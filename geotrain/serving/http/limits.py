"""What one client may take from the service."""

from dataclasses import dataclass, replace
from typing import Self

from geotrain.errors import InputError

_OTHER_FILES = 128
"""Of the process, that are no connections of clients."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of connections and requests; prompts are bounded by the model."""

    max_connections: int = 4096
    """Open at the same time."""
    max_connections_per_address: int | None = None
    """Of one client, or of one proxy with all who come through it; None: a quarter of all."""
    max_head_bytes: int = 64 << 10
    """The longest head of a request: its first line and headers."""
    max_headers: int = 100
    head_s: float = 10.0
    """The longest that a connection may take to send the head of a request, from when it is opened."""
    body_s: float = 60.0
    """The longest that a body may take to arrive."""
    idle_s: float = 75.0
    """How long a connection is kept for another request."""
    max_body_bytes: int = 4 << 20
    """The largest body that is read."""
    max_held_bytes: int = 256 << 20
    """Bodies of all requests under way together."""
    deadline_s: float = 600.0
    """The longest that a request may take, from its first byte to the last of its answer."""

    def __post_init__(self) -> None:
        for name in ("max_connections", "max_head_bytes", "max_headers", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)} must be at least 1")
        if not 1 <= self.connections_per_address <= self.max_connections:
            given = self.max_connections_per_address
            raise InputError(f"max_connections_per_address: {given} must be 1 to {self.max_connections}, all of them")
        if self.max_held_bytes < self.max_body_bytes:
            raise InputError(f"max_held_bytes: {self.max_held_bytes} must be at least {self.max_body_bytes}, one body")
        for name in ("head_s", "body_s", "idle_s", "deadline_s"):
            if not 0 < getattr(self, name) <= 86400:
                raise InputError(f"{name}: {getattr(self, name)} must be above 0 and at most a day")

    @property
    def connections_per_address(self) -> int:
        """The most that one address may have, so that others find room."""
        given = self.max_connections_per_address
        return max(1, self.max_connections // 4) if given is None else given

    def within(self, files: int) -> Self:
        """Leave some of so many open files for everything else."""
        most = max(1, min(self.max_connections, files - _OTHER_FILES))
        given = self.max_connections_per_address
        return replace(
            self, max_connections=most, max_connections_per_address=None if given is None else min(given, most)
        )
