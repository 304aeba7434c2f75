"""A channel over TCP, as an application uses it. Opened by `connect` on one side and by a `Listener` on the other."""

import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from geotrain.errors import InputError
from geotrain.transport.checksum import Buffer
from geotrain.transport.counters import Counters
from geotrain.transport.errors import ClosedError, TransportError
from geotrain.transport.frame import Bye
from geotrain.transport.header import Header
from geotrain.transport.interface import Message
from geotrain.transport.session import Session

_FAREWELL_S = 1.0


class TcpChannel:
    """See `interface.Channel`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def peer(self) -> str:
        """The peer's node name."""
        return self._session.peer

    @property
    def name(self) -> str:
        """What the dialer called the channel."""
        return self._session.name

    @property
    def counters(self) -> Counters:
        """What has happened so far."""
        with self._session.lock:
            return self._session.counters()

    def send(self, header: Header, data: Buffer, *, deadline_s: float) -> int:
        """Hand over a buffer; waits while the window is full."""
        session, outbox = self._session, self._session.stripes.outbox
        view = memoryview(data).cast("B")
        if len(view) > session.max_buffer_bytes:
            raise InputError(
                f"a buffer of {len(view)} bytes: {self.peer} and this node take {session.max_buffer_bytes}"
            )
        if header.job != session.job:
            raise InputError(f"a buffer of job {header.job!r}: this channel belongs to {session.job!r}")
        with session.lock:
            if session.error is not None:
                raise session.error
            full = "no room in the window"
            session.wait(session.room, lambda: outbox.has_room(len(view)) or session.peer_closed, deadline_s, full)
            if session.peer_closed:
                raise session.closed_by_peer()
            number = session.stripes.send(header, view)
            session.wake_one()
        return number

    def flush(self, *, deadline_s: float, number: int | None = None) -> None:
        """Wait until the peer has the buffers up to this number, or all of them."""
        session, outbox = self._session, self._session.stripes.outbox
        with session.lock:
            end = outbox.next_number if number is None else number + 1
            what = f"buffer {outbox.first_unacknowledged} not acknowledged"
            session.wait(session.progress, lambda: outbox.first_unacknowledged >= end, deadline_s, what)

    def foretell(self, coming: Callable[[Header], None]) -> None:
        """Have `coming` called when a buffer begins to arrive."""
        with self._session.lock:
            self._session.on_coming = coming

    def receive(self, *, deadline_s: float, into: memoryview | None = None) -> Message:
        """The next buffer, in order."""
        session, inbox = self._session, self._session.stripes.inbox
        with session.lock:
            session.wait(
                session.arrival, lambda: inbox.ready_bytes is not None or session.drained, deadline_s, "no buffer"
            )
            if (size_bytes := inbox.ready_bytes) is None:
                raise session.closed_by_peer()
            if into is not None and into.nbytes < size_bytes:
                raise InputError(f"the next buffer has {size_bytes} bytes, but there is room for {into.nbytes}")
            message = inbox.pop()
            assert message is not None
            if inbox.ready_bytes is not None:
                session.arrival.notify()
            # The window moves on; the oldest connection says so.
            for connection in session.connections.values():
                connection.wake()
                break
        if into is None:
            return message
        place = into.cast("B")[:size_bytes]
        place[:] = message.data
        return Message(header=message.header, data=place)

    def close(self, *, deadline_s: float = 5.0) -> None:
        """Flush as far as the deadline allows, tell the peer and end."""
        session = self._session
        end_s = time.monotonic() + deadline_s + _FAREWELL_S
        with suppress(TransportError):
            self.flush(deadline_s=deadline_s)
        with session.lock:
            if session.error is None:
                session.stripes.farewell = Bye(sent=session.stripes.outbox.next_number)
                session.end(ClosedError(f"the channel to {self.peer} was closed on this side"))
            while session.connections and (left_s := end_s - time.monotonic()) > 0:
                session.progress.wait(left_s)
            for connection in session.connections.values():
                connection.stop()

    def __enter__(self) -> Self:
        """The channel; closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error without waiting for what is on its way."""
        self.close(deadline_s=0.0 if error else 5.0)
