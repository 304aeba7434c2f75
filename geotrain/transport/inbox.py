"""What one side receives: pieces put in place, each once; buffers handed over whole, in order, each once.

Pure: no sockets, no clock, no threads. Every size is checked before memory is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from geotrain.transport.errors import FrameError
from geotrain.transport.frame import LEAST_CHUNK_BYTES, Data
from geotrain.transport.header import Header
from geotrain.transport.interface import Message
from geotrain.transport.outbox import OVERHEAD_BYTES

Allocate = Callable[[Header, int], memoryview]
"""Where a buffer of so many bytes shall go; called once per buffer, before its first byte arrives."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the peer may send."""

    job: str
    window_bytes: int
    max_buffer_bytes: int
    chunk_bytes: int
    allocate: Allocate
    least_chunk_bytes: int = LEAST_CHUNK_BYTES


@dataclass(slots=True)
class _Buffer:
    header: Header
    data: memoryview
    chunk_bytes: int
    missing: int
    landed: bytearray
    writers: dict[int, int] = field(default_factory=dict)
    """Which connection is writing the piece at an offset; it alone touches that part of the buffer."""
    spares: dict[int, memoryview] = field(default_factory=dict)
    """Pieces that arrived by another way while their writer is stuck."""


def fresh_memory(header: Header, size_bytes: int) -> memoryview:
    """Memory that is not touched before the kernel writes to it."""
    return np.empty(size_bytes, np.uint8).data


class Inbox:
    """Buffers on their way in, and which connection writes where."""

    def __init__(self, limits: Limits) -> None:
        self.delivered = 0
        self.delivered_bytes = 0
        self.duplicates = 0
        self._limits = limits
        self._buffers: dict[int, _Buffer] = {}
        self._charged_bytes = 0
        self._writing: dict[int, tuple[Data, memoryview]] = {}

    def begin(self, connection: int, data: Data) -> tuple[memoryview, int | None]:
        """Where the payload goes, and the connection that has been writing there until now, if any: it is stale."""
        buffer = self._buffer(data)
        stale = None
        if buffer is not None and not buffer.landed[index := data.offset // data.chunk_bytes]:
            stale = buffer.writers.get(index)
            if stale is None:
                buffer.writers[index] = connection
                place = buffer.data[data.offset : data.offset + data.length]
                self._writing[connection] = data, place
                return place, None
        place = memoryview(bytearray(data.length))
        self._writing[connection] = data, place
        return place, stale

    def end(self, connection: int) -> None:
        """The payload is there and its checksum right."""
        data, place = self._writing.pop(connection)
        buffer = self._buffers.get(data.number)
        index = data.offset // data.chunk_bytes
        if buffer is None or buffer.landed[index]:
            self.duplicates += 1
            return
        writer = buffer.writers.get(index)
        if writer is None:
            buffer.data[data.offset : data.offset + data.length] = place
        elif writer != connection:
            buffer.spares[index] = place
            return
        self._land(buffer, index)

    def closed(self, connection: int) -> None:
        """The connection is gone, perhaps in the middle of a payload."""
        data, _ = self._writing.pop(connection, (None, None))
        buffer = self._buffers.get(data.number) if data else None
        if data is None or buffer is None:
            return
        index = data.offset // data.chunk_bytes
        if buffer.writers.get(index) != connection:
            return
        del buffer.writers[index]
        if index in buffer.spares:
            buffer.data[data.offset : data.offset + data.length] = buffer.spares[index]
            self._land(buffer, index)

    def pop(self) -> Message | None:
        """The next buffer in order, if it is whole."""
        buffer = self._buffers.get(self.delivered)
        if buffer is None or buffer.missing:
            return None
        del self._buffers[self.delivered]
        self._charged_bytes -= len(buffer.data) + OVERHEAD_BYTES
        self.delivered += 1
        self.delivered_bytes += len(buffer.data)
        return Message(header=buffer.header, data=buffer.data)

    @property
    def ready_bytes(self) -> int | None:
        """The size of the buffer that `pop` has; None if it has none."""
        buffer = self._buffers.get(self.delivered)
        return None if buffer is None or buffer.missing else len(buffer.data)

    def _land(self, buffer: _Buffer, index: int) -> None:
        buffer.writers.pop(index, None)
        buffer.spares.pop(index, None)
        buffer.landed[index] = 1
        buffer.missing -= 1

    def _buffer(self, data: Data) -> _Buffer | None:
        """The buffer that the piece belongs to, begun if need be; None if it was handed over long ago."""
        if data.number < self.delivered:
            self._check_chunk(data)
            return None
        buffer = self._buffers.get(data.number)
        if buffer is None:
            return self._begin_buffer(data)
        if (buffer.header, len(buffer.data), buffer.chunk_bytes) != (data.header, data.total_bytes, data.chunk_bytes):
            raise FrameError(f"pieces of buffer {data.number} contradict each other")
        return buffer

    def _check_chunk(self, data: Data) -> None:
        if data.length > self._limits.chunk_bytes:
            raise FrameError(f"a piece of {data.length} bytes, at most {self._limits.chunk_bytes} are accepted")

    def _begin_buffer(self, data: Data) -> _Buffer:
        limits = self._limits
        self._check_chunk(data)
        if data.header.job != limits.job:
            raise FrameError(f"a buffer of job {data.header.job!r}, this is {limits.job!r}")
        if data.total_bytes > limits.max_buffer_bytes:
            raise FrameError(f"a buffer of {data.total_bytes} bytes, at most {limits.max_buffer_bytes} are accepted")
        if data.chunk_bytes < min(limits.least_chunk_bytes, data.total_bytes):
            raise FrameError(f"a buffer cut into pieces of {data.chunk_bytes} bytes is cut too fine")
        charge = data.total_bytes + OVERHEAD_BYTES
        if self._buffers and self._charged_bytes + charge > limits.window_bytes:
            raise FrameError(f"sends more than the window of {limits.window_bytes} bytes")
        place = limits.allocate(data.header, data.total_bytes)
        if place.nbytes != data.total_bytes or place.readonly:
            raise ValueError(f"allocate must return {data.total_bytes} writable bytes")
        pieces = max(1, -(-data.total_bytes // data.chunk_bytes))
        buffer = _Buffer(data.header, place.cast("B"), data.chunk_bytes, pieces, bytearray(pieces))
        self._buffers[data.number] = buffer
        self._charged_bytes += charge
        return buffer
