"""How a pool cuts, how much it keeps on its way, and how patient it is."""

from dataclasses import dataclass
from typing import Self

from geotrain.errors import InputError

_MIB = 1 << 20
_LEAST_SHARD_BYTES = 16 << 10
_PUSH = 1.1
"""A little more than the wire takes, so that it never waits for a thread to wake up."""
_SHARD_S = 0.02
"""On a link of known rate a shard takes so long on the wire: a small part of a turn."""


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """The same on all members of a pool, except that `patience_s` may differ."""

    chunk_bytes: int = 2 * _MIB
    """The largest shard. What stays visible of scatter and gather is one shard's time on the fabric each."""
    min_chunk_bytes: int = 64 << 10
    """Small buffers are cut finer, so that every member gets several shards, but not below this."""
    shards_per_path: int = 8
    """How many of them, if the buffer is large enough."""
    path_bytes: int = 64 * _MIB
    """What an owner has on its way by each path: handed to a relay and not yet with the receiver.

    Bounds a relay's memory to that for each of its peers, each way. At least rate x round trip, or the path idles.
    """
    wire_bytes: int = 32 * _MIB
    """What a member hands to a channel before the far end has acknowledged it; what waits beyond that takes turns."""
    rate_bytes_per_s: float | None = None
    """How fast a member hands out what goes over the WAN: what waits then does so where it can be overtaken by whose
    turn it is, and not in the network's queues. None lets TCP decide alone."""
    window_bytes: int = 512 * _MIB
    """Sent and not yet taken by the receiver's `receive`. Bounds the receiver's memory."""
    max_buffer_bytes: int = 256 * _MIB
    """The largest buffer sent or accepted."""
    patience_s: float = 1.0
    """A path that delivers nothing of a buffer while others do for so long gets nothing new, and its shards are sent by
    others too: the pause when a relay dies. Whether it is lost is for its channels to say."""

    def __post_init__(self) -> None:
        for name in ("chunk_bytes", "min_chunk_bytes", "shards_per_path", "path_bytes", "wire_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)} must be at least 1")
        if self.rate_bytes_per_s is not None and not self.rate_bytes_per_s > 0:
            raise InputError(f"rate_bytes_per_s: {self.rate_bytes_per_s} must be above 0")
        if not self.patience_s > 0:
            raise InputError(f"patience_s: {self.patience_s} must be above 0")
        if not 1 <= self.max_buffer_bytes <= min(self.window_bytes, (1 << 32) - 1):
            raise InputError(
                f"max_buffer_bytes: {self.max_buffer_bytes} must be 1 to window_bytes, {self.window_bytes}, below 4 GiB"
            )

    @classmethod
    def for_link(cls, *, rate_bytes_per_s: float, rtt_s: float) -> Self:
        """Enough on its way for a pair of this rate and round trip, and not much more."""
        chunk_bytes = min(2 * _MIB, max(_LEAST_SHARD_BYTES, int(rate_bytes_per_s * _SHARD_S)))
        wire_bytes = int(2 * rate_bytes_per_s * rtt_s) + 4 * chunk_bytes
        return cls(
            chunk_bytes=chunk_bytes,
            min_chunk_bytes=min(cls.min_chunk_bytes, chunk_bytes),
            wire_bytes=wire_bytes,
            path_bytes=2 * wire_bytes,
            rate_bytes_per_s=_PUSH * rate_bytes_per_s,
        )
