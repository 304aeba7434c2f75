"""What an owner's counterpart receives: shards put in place, each once; buffers handed over whole, in order, each once.

Pure. Shards of several buffers may come in any order, by any path, and more than once. Every size is checked before
memory is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geotrain.transport.errors import FrameError
from geotrain.transport.header import Header
from geotrain.transport.interface import Message
from geotrain.transport.outbox import OVERHEAD_BYTES
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.pool.words import Opening, Shard


@dataclass(slots=True)
class _Buffer:
    data: memoryview
    missing_bytes: int
    landed: set[int]
    header: Header | None = None

    @property
    def whole(self) -> bool:
        return self.header is not None and not self.missing_bytes and bool(self.landed)


class Gatherer:
    """Buffers on their way in."""

    def __init__(self, pooling: Pooling) -> None:
        self.delivered = 0
        self.delivered_bytes = 0
        self.duplicates = 0
        self.on_coming: Callable[[Header], None] = lambda header: None
        """Told what a buffer is that will arrive."""
        self._pooling = pooling
        self._buffers: dict[int, _Buffer] = {}
        self._charged_bytes = 0

    def opened(self, opening: Opening) -> None:
        """What a buffer is."""
        buffer = self._buffer(opening.number, opening.total_bytes)
        if buffer is None or buffer.header is not None:
            raise FrameError(f"opens buffer {opening.number} twice")
        buffer.header = opening.header
        self.on_coming(opening.header)

    def land(self, shard: Shard, data: memoryview) -> None:
        """A part of a buffer; one that is there already is dropped."""
        buffer = self._buffer(shard.number, shard.total_bytes)
        if buffer is None or shard.offset in buffer.landed:
            self.duplicates += 1
            return
        buffer.data[shard.offset : shard.offset + len(data)] = data
        buffer.landed.add(shard.offset)
        buffer.missing_bytes -= len(data)
        if buffer.missing_bytes < 0:
            raise FrameError(f"shards of buffer {shard.number} overlap")

    @property
    def ready_bytes(self) -> int | None:
        """The size of the buffer that `pop` has; None if it has none."""
        buffer = self._buffers.get(self.delivered)
        return len(buffer.data) if buffer is not None and buffer.whole else None

    def pop(self) -> Message | None:
        """The next buffer in order, if it is whole."""
        buffer = self._buffers.get(self.delivered)
        if buffer is None or not buffer.whole:
            return None
        assert buffer.header is not None
        del self._buffers[self.delivered]
        self.delivered += 1
        self.delivered_bytes += len(buffer.data)
        self._charged_bytes -= len(buffer.data) + OVERHEAD_BYTES
        return Message(header=buffer.header, data=buffer.data)

    def _buffer(self, number: int, total_bytes: int) -> _Buffer | None:
        """The buffer, begun if need be; None if it was handed over long ago."""
        if number < self.delivered:
            return None
        buffer = self._buffers.get(number)
        if buffer is None:
            return self._begin(number, total_bytes)
        if len(buffer.data) != total_bytes:
            raise FrameError(f"parts of buffer {number} contradict each other: {len(buffer.data)} or {total_bytes}")
        return buffer

    def _begin(self, number: int, total_bytes: int) -> _Buffer:
        if total_bytes > self._pooling.max_buffer_bytes:
            raise FrameError(f"a buffer of {total_bytes} bytes, at most {self._pooling.max_buffer_bytes} are accepted")
        charge = total_bytes + OVERHEAD_BYTES
        if self._buffers and self._charged_bytes + charge > self._pooling.window_bytes:
            raise FrameError(f"sends more than the window of {self._pooling.window_bytes} bytes")
        self._charged_bytes += charge
        place = np.empty(total_bytes, np.uint8).data
        self._buffers[number] = _Buffer(place, total_bytes, set())
        return self._buffers[number]
