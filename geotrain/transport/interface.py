"""The seam: a channel between two nodes, and what it promises. `TcpChannel` and `MemoryChannel` keep it."""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from geotrain.transport.checksum import Buffer
from geotrain.transport.counters import Counters
from geotrain.transport.header import Header


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A buffer that has arrived; the data belongs to whoever received it."""

    header: Header
    data: memoryview


class Channel(Protocol):
    """A full-duplex, ordered, reliable channel to one peer.

    Buffers arrive whole, unchanged, in the order in which they were sent, each exactly once, whatever happens to single
    connections; or a call raises. Any thread may call anything; the order of sends from several threads is the order in
    which the calls got in. Each call ends within `deadline_s` seconds, at the latest with DeadlineError, which leaves
    the channel as it was. Besides, each call may raise PeerLostError (the peer was silent for too long, or died and
    came back without a memory of this channel) and ClosedError; after one of these every further call raises it too,
    except that `receive` first hands over what had arrived.
    """

    @property
    def peer(self) -> str:
        """The peer's node name."""

    @property
    def counters(self) -> Counters:
        """What has happened so far."""

    def send(self, header: Header, data: Buffer, *, deadline_s: float) -> int:
        """Hand over a buffer; waits while the window is full. Returns the buffer's number, counted from 0.

        The data is not copied: it must stay as it is until `flush` has returned for its number.
        """

    def flush(self, *, deadline_s: float, number: int | None = None) -> None:
        """Wait until the peer has the buffers up to this number (all of them if None) in its memory."""

    def receive(self, *, deadline_s: float, into: memoryview | None = None) -> Message:
        """The next buffer. With `into` it is copied to the beginning of that, and the message's data is that part."""

    def foretell(self, coming: Callable[[Header], None]) -> None:
        """Have `coming` called when a buffer begins to arrive, on a thread that must not be held up."""

    def close(self, *, deadline_s: float = 5.0) -> None:
        """Flush as far as the deadline allows, tell the peer and end. Never raises; again is fine."""

    def __enter__(self) -> Self:
        """The channel; closed at the end of the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
