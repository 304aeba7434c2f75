"""One side of a channel without its sockets: events in, frames out.

Pure: no sockets, no clock, no threads. Connections are numbers here; frames on one connection keep their order, all
else may happen in any order and connections may go at any moment. The shell (`session.py`) tells what happens and asks
`next_frame` whenever a connection has room.
"""

from geotrain.transport.errors import FrameError
from geotrain.transport.frame import Bye, Data, Frame, Status
from geotrain.transport.header import Header
from geotrain.transport.inbox import Inbox, Limits
from geotrain.transport.interface import Message
from geotrain.transport.outbox import Outbox, Piece, cut


class Stripes:
    """Outbox, inbox and what the two sides tell each other about them."""

    def __init__(self, limits: Limits, *, send_window_bytes: int, chunk_bytes: int, min_chunk_bytes: int) -> None:
        self.outbox = Outbox(send_window_bytes)
        self.inbox = Inbox(limits)
        self.lanes = 1
        """How many of the connections carry data."""
        self.wanted = 1
        """How many connections this side would like."""
        self.peer_wants = 1
        self.farewell: Bye | None = None
        """Set to close: each connection says it once and then nothing more."""
        self.peer_farewell: Bye | None = None
        self._chunks = min(min_chunk_bytes, chunk_bytes), chunk_bytes
        self._arrived: dict[int, int] = {}
        self._told: dict[int, Status] = {}
        self._said_bye: set[int] = set()

    @property
    def connections(self) -> list[int]:
        """Those that are open, oldest first."""
        return list(self._arrived)

    def opened(self, connection: int) -> None:
        """A connection is there; its number has not been used before."""
        self._arrived[connection] = 0
        # Both sides begin from this without a word.
        self._told[connection] = Status(acknowledged=0, taken=0, connections=1)
        self.outbox.opened(connection)

    def closed(self, connection: int) -> None:
        """A connection is gone."""
        self._arrived.pop(connection, None)
        self._told.pop(connection, None)
        self.outbox.closed(connection)
        self.inbox.closed(connection)

    def send(self, header: Header, data: memoryview) -> int:
        """Queue a buffer; the outbox has room for it."""
        return self.outbox.add(header, data, cut(len(data), self.lanes, *self._chunks))

    def receive(self) -> Message | None:
        """The next buffer in order, if it is whole."""
        return self.inbox.pop()

    def carries(self, connection: int) -> bool:
        """Whether this connection is one of those that carry data."""
        if len(self._arrived) <= self.lanes:
            return True
        return connection in self.connections[: self.lanes]

    def next_frame(self, connection: int) -> Status | Bye | Piece | None:
        """What this connection sends next; None until something happens."""
        if connection in self._said_bye:
            return None
        if self._news(connection):
            return self.status(connection)
        if self.farewell is not None:
            self._said_bye.add(connection)
            return self.farewell
        return self.outbox.take(connection) if self.carries(connection) else None

    def has_words(self, connection: int) -> bool:
        """Whether `next_frame` has something that is no piece."""
        return self.farewell is not None or self._news(connection)

    def has_work(self, connection: int) -> bool:
        """Whether `next_frame` has something."""
        if self.farewell is not None:
            return connection not in self._said_bye
        return self._news(connection) or (self.outbox.waiting and self.carries(connection))

    def status(self, connection: int) -> Status:
        """The state of things, to be sent now."""
        status = self._told[connection] = self._status(connection)
        return status

    def frame_arrived(self, connection: int, frame: Frame) -> tuple[memoryview | None, int | None]:
        """Take in a frame: where its payload goes, if it has one, and a connection that is stale, if there is one."""
        match frame:
            case Data():
                return self.inbox.begin(connection, frame)
            case Status():
                self.outbox.acknowledged(connection, frame.acknowledged)
                self.outbox.taken(frame.taken)
                self.peer_wants = frame.connections
            case Bye():
                self.peer_farewell = frame
            case _:
                raise FrameError("greets again")
        return None, None

    def payload_arrived(self, connection: int) -> None:
        """The payload of the last Data frame is complete and its checksum right."""
        self.inbox.end(connection)
        self._arrived[connection] += 1

    def _status(self, connection: int) -> Status:
        return Status(acknowledged=self._arrived[connection], taken=self.inbox.delivered, connections=self.wanted)

    def _news(self, connection: int) -> bool:
        told = self._told[connection]
        if told.acknowledged != self._arrived[connection]:
            return True
        # What concerns the whole channel is told over one connection: the oldest.
        oldest = next(iter(self._arrived))
        return connection == oldest and told != self._status(connection)
