"""A channel within one process, with a set delay and rate: for tests, and for the trainer's tests.

Keeps what `interface.Channel` promises. Time is real: a buffer arrives `size / rate + delay` after the one before it
has left. Data is copied when it is sent.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from geotrain.errors import InputError
from geotrain.transport.checksum import Buffer
from geotrain.transport.counters import Counters
from geotrain.transport.errors import ClosedError, DeadlineError, PeerLostError, TransportError
from geotrain.transport.header import Header
from geotrain.transport.interface import Message
from geotrain.transport.outbox import OVERHEAD_BYTES
from geotrain.transport.settings import Settings


@dataclass(slots=True)
class _Way:
    """One direction: what is on its way and what has become of the rest."""

    delay_s: float
    rate_bytes_per_s: float
    window_bytes: int
    flying: deque[tuple[float, Message]] = field(default_factory=deque)
    sent: int = 0
    sent_bytes: int = 0
    taken: int = 0
    taken_bytes: int = 0
    free_at_s: float = -math.inf
    closed: bool = False

    def has_room(self, size_bytes: int) -> bool:
        used = sum(len(message.data) + OVERHEAD_BYTES for _, message in self.flying)
        return not self.flying or used + size_bytes + OVERHEAD_BYTES <= self.window_bytes

    def arrives_at_s(self, now_s: float, size_bytes: int) -> float:
        self.free_at_s = max(now_s, self.free_at_s) + size_bytes / self.rate_bytes_per_s
        return self.free_at_s + self.delay_s


def memory_pair(
    first: str = "a",
    second: str = "b",
    *,
    delay_s: float = 0.0,
    rate_bytes_per_s: float = math.inf,
    settings: Settings | None = None,
) -> tuple["MemoryChannel", "MemoryChannel"]:
    """The two ends of a channel between the nodes `first` and `second`."""
    settings = settings or Settings()
    there, back = (_Way(delay_s, rate_bytes_per_s, settings.window_bytes) for _ in range(2))
    changed = threading.Condition()
    one = MemoryChannel(second, there, back, changed, settings)
    return one, MemoryChannel(first, back, there, changed, settings)


class MemoryChannel:
    """See `interface.Channel`; made by `memory_pair`."""

    def __init__(self, peer: str, out: _Way, into: _Way, changed: threading.Condition, settings: Settings) -> None:
        self.peer = peer
        self._out = out
        self._in = into
        self._changed = changed
        self._max_buffer_bytes = settings.max_buffer_bytes
        self._error: TransportError | None = None

    @property
    def counters(self) -> Counters:
        """What has happened so far."""
        with self._changed:
            return Counters(
                buffers_sent=self._out.sent,
                buffers_received=self._in.taken,
                bytes_sent=self._out.sent_bytes,
                bytes_received=self._in.taken_bytes,
            )

    def send(self, header: Header, data: Buffer, *, deadline_s: float) -> int:
        """Hand over a buffer; waits while the window is full."""
        copy = memoryview(bytearray(memoryview(data).cast("B")))
        if len(copy) > self._max_buffer_bytes:
            raise InputError(f"a buffer of {len(copy)} bytes: {self.peer} and this node take {self._max_buffer_bytes}")
        end_s = time.monotonic() + deadline_s
        with self._changed:
            self._check_open()
            while not self._out.has_room(len(copy)):
                self._wait(end_s, end_s, f"no room in the window within {deadline_s:g} s")
                self._check_open()
            number = self._out.sent
            message = Message(header=header, data=copy)
            self._out.flying.append((self._out.arrives_at_s(time.monotonic(), len(copy)), message))
            self._out.sent += 1
            self._out.sent_bytes += len(copy)
            self._changed.notify_all()
        return number

    def flush(self, *, deadline_s: float, number: int | None = None) -> None:
        """Wait until the peer has the buffers up to this number, or all of them, and has said so."""
        end_s = time.monotonic() + deadline_s
        with self._changed:
            last = self._out.sent if number is None else number + 1
            while self._out.taken < last:
                arrives_at_s = self._out.flying[last - 1 - self._out.taken][0]
                if time.monotonic() >= arrives_at_s + self._out.delay_s:
                    return
                self._check_open()
                self._wait(end_s, arrives_at_s + self._out.delay_s, f"not acknowledged within {deadline_s:g} s")

    def receive(self, *, deadline_s: float, into: memoryview | None = None) -> Message:
        """The next buffer, in order."""
        end_s = time.monotonic() + deadline_s
        with self._changed:
            while not self._in.flying or self._in.flying[0][0] > time.monotonic():
                if not self._in.flying:
                    self._check_open()
                arrives_at_s = self._in.flying[0][0] if self._in.flying else end_s
                self._wait(end_s, arrives_at_s, f"no buffer within {deadline_s:g} s")
            message = self._in.flying[0][1]
            size_bytes = len(message.data)
            if into is not None and into.nbytes < size_bytes:
                raise InputError(f"the next buffer has {size_bytes} bytes, but there is room for {into.nbytes}")
            self._in.flying.popleft()
            self._in.taken += 1
            self._in.taken_bytes += size_bytes
            self._changed.notify_all()
        if into is None:
            return message
        place = into.cast("B")[:size_bytes]
        place[:] = message.data
        return Message(header=message.header, data=place)

    def foretell(self, coming: Callable[[Header], None]) -> None:
        """Buffers arrive in one piece here: nothing is seen coming."""

    def close(self, *, deadline_s: float = 5.0) -> None:
        """Tell the peer and end; what was sent still arrives."""
        with self._changed:
            if self._error is None:
                self._error = ClosedError(f"the channel to {self.peer} was closed on this side")
                self._out.closed = True
            self._changed.notify_all()

    def lose_peer(self) -> None:
        """As if the peer had died: what is on its way is lost and every call raises PeerLostError."""
        with self._changed:
            self._error = PeerLostError(f"{self.peer}: lost")
            self._in.flying.clear()
            self._changed.notify_all()

    def __enter__(self) -> Self:
        """The channel; closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._in.closed:
            raise ClosedError(f"{self.peer}: has closed the channel")

    def _wait(self, end_s: float, until_s: float, what: str) -> None:
        """Until something changes or `until_s`, but not beyond the deadline `end_s`."""
        now_s = time.monotonic()
        if now_s >= end_s:
            raise DeadlineError(f"{self.peer}: {what}")
        self._changed.wait(min(end_s, until_s) - now_s)
