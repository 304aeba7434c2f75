"""How a channel behaves: sizes, times, number of connections."""

from dataclasses import dataclass
from typing import Literal

from geotrain.errors import InputError
from geotrain.transport.frame import LEAST_PEER_TIMEOUT_MS

_MIB = 1 << 20
_MOST_DOUBT_S = 2.5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every limit that a channel and a listener keep; both sides of a channel may differ."""

    connections: int | Literal["auto"] = "auto"
    """TCP connections of a channel; auto adds some while that makes it faster."""
    max_connections: int = 64
    """The most that auto opens and that a listener lets in for one channel."""
    max_buffer_bytes: int = 256 * _MIB
    """The largest buffer sent or accepted."""
    window_bytes: int = 512 * _MIB
    """Bytes on their way: sent and not yet taken by the peer's `receive`. Bounds the memory of both sides."""
    chunk_bytes: int = _MIB
    """The largest piece that one connection carries at a time, sent or accepted."""
    min_chunk_bytes: int = 64 << 10
    """Buffers are cut finer for many connections, but not below this."""
    socket_buffer_bytes: int | None = None
    """Fixed kernel buffers of a connection, and so its TCP window; None leaves them to the kernel's own tuning."""
    unsent_bytes: int = _MIB
    """What a connection may hold in the kernel beyond what is in flight; less where buffers are cut finer."""
    congestion: str | None = None
    """TCP congestion control by the kernel's name, such as bbr; None takes the system's."""
    peer_timeout_s: float = 20.0
    """A peer that is silent for so long is lost."""
    handshake_timeout_s: float = 5.0
    """From TCP connect to the end of the greeting."""
    max_backoff_s: float = 1.0
    """Pause between attempts to reconnect; begins at a twentieth of it and doubles."""

    def __post_init__(self) -> None:
        for name in ("max_connections", "max_buffer_bytes", "window_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)} must be at least 1")
        for name in ("handshake_timeout_s", "max_backoff_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: {getattr(self, name)} must be above 0")
        if self.connections != "auto" and not 1 <= self.connections <= self.max_connections:
            raise InputError(f"connections: {self.connections} must be 'auto' or 1 to {self.max_connections}")
        if self.max_buffer_bytes > self.window_bytes:
            raise InputError(f"max_buffer_bytes: {self.max_buffer_bytes} must fit window_bytes, {self.window_bytes}")
        if not LEAST_PEER_TIMEOUT_MS / 1000 <= self.peer_timeout_s <= 86400:
            least = f"at least {LEAST_PEER_TIMEOUT_MS / 1000:g} s"
            raise InputError(f"peer_timeout_s: {self.peer_timeout_s} must be {least} and at most a day")
        if not 4096 <= self.chunk_bytes < 1 << 31:
            raise InputError(f"chunk_bytes: {self.chunk_bytes} must be at least 4 KiB and below 2 GiB")
        if self.min_chunk_bytes < 4096:
            raise InputError(f"min_chunk_bytes: {self.min_chunk_bytes} must be at least 4 KiB")

    @property
    def peer_timeout_ms(self) -> int:
        """For the greeting."""
        return round(self.peer_timeout_s * 1000)

    @property
    def silence_s(self) -> float:
        """A connection on which nothing is heard for so long is replaced, while there is time left to do so."""
        return self.peer_timeout_s / 2

    @property
    def doubt_s(self) -> float:
        """A silence after which a connection is replaced if others are not silent, or to see whether a new one is."""
        return min(_MOST_DOUBT_S, self.silence_s)
