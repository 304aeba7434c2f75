"""What the threads of one channel share: `Stripes` behind a lock, the connections that are open, how the peer is.

Runs connections and answers their questions; `TcpChannel` is how an application uses it, dialer and listener bring the
connections. Conditions: `room` in the window, `arrival` of a buffer, `progress` of what was sent or of the connections.
"""

import socket
import threading
import time
from collections.abc import Callable

from geotrain.transport.connection import Connection
from geotrain.transport.counters import Counters
from geotrain.transport.errors import ClosedError, DeadlineError, FrameError, PeerLostError, TransportError, plain
from geotrain.transport.frame import Bye, Frame, Hello, Status
from geotrain.transport.header import Header
from geotrain.transport.inbox import Allocate, Limits
from geotrain.transport.outbox import Piece
from geotrain.transport.settings import Settings
from geotrain.transport.stripes import Stripes
from geotrain.transport.tuning import Tuner

_MOST_PING_S = 1.0


class Session:
    """One side of a channel, from its first connection to its end."""

    def __init__(self, *, mine: Hello, theirs: Hello, settings: Settings, allocate: Allocate) -> None:
        self.job = mine.job
        self.peer = theirs.node
        self.name = mine.channel
        self.max_buffer_bytes = min(settings.max_buffer_bytes, theirs.max_buffer_bytes)
        self.on_coming: Callable[[Header], None] = lambda header: None
        """Told when a buffer begins to arrive; with the lock held."""
        self.on_target: Callable[[int], None] | None = None
        """Told how many connections there should be while there are fewer; with the lock held."""
        self.stripes = Stripes(
            Limits(
                job=mine.job,
                window_bytes=settings.window_bytes,
                max_buffer_bytes=settings.max_buffer_bytes,
                chunk_bytes=settings.chunk_bytes,
                allocate=self._begin_buffer,
            ),
            send_window_bytes=min(settings.window_bytes, theirs.window_bytes),
            chunk_bytes=min(settings.chunk_bytes, theirs.max_chunk_bytes),
            min_chunk_bytes=settings.min_chunk_bytes,
        )
        self._allocate = allocate
        self.lock = threading.Lock()
        self.room = threading.Condition(self.lock)
        self.arrival = threading.Condition(self.lock)
        self.progress = threading.Condition(self.lock)
        self.error: TransportError | None = None
        self.connections: dict[int, Connection] = {}
        self._settings = settings
        # Often enough for the less patient of the two.
        self._ping_interval_s = min(_MOST_PING_S, settings.peer_timeout_s / 8, theirs.peer_timeout_ms / 8000)
        self._tuner = Tuner(settings.max_connections) if settings.connections == "auto" else None
        self._target = 1
        if settings.connections != "auto":
            self.stripes.lanes = self.stripes.wanted = self._target = settings.connections
        self._opened = self._lost = self._reconnects = self._malformed = 0
        self._frames_sent = self._frames_received = 0
        self._heard_at_s = time.monotonic()
        self._trouble = ""

    # For dialer and listener.

    @property
    def over(self) -> bool:
        """Whether no more connections are of use."""
        with self.lock:
            self._lost_at_s()
            return self.error is not None or self.peer_closed

    def serve(self, sock: socket.socket) -> None:
        """Use this socket, which has greeted, until it ends."""
        with self.lock:
            if self.error is not None or len(self.connections) >= self._settings.max_connections:
                sock.close()
                return
            number = self._opened
            try:
                connection = Connection(sock, number, self, self._settings, self._ping_interval_s)
            except OSError as error:
                self._trouble = plain(error)
                sock.close()
                return
            self._opened += 1
            self._reconnects += self._reconnects < self._lost
            self.connections[number] = connection
            self.stripes.opened(number)
            self._aim()
        trouble = ""
        try:
            connection.run()
        except FrameError as error:
            trouble = str(error)
            self._malformed += 1
        except OSError as error:
            trouble = plain(error)
        except Exception as error:
            # Such as an `allocate` that fails: better every call says so than that this thread dies unheard.
            self.fail(TransportError(f"this side of the channel to {self.peer} failed: {error!r}"))
        with self.lock:
            del self.connections[number]
            connection.close()
            self.stripes.closed(number)
            self._heard_at_s = max(self._heard_at_s, connection.heard_at_s)
            self._trouble = trouble or self._trouble
            self._lost += not self.peer_closed and self.error is None
            self.wake_one()
            self._notify()

    def fail(self, error: TransportError) -> None:
        """End every call with this error."""
        with self.lock:
            self.end(error)
            for connection in self.connections.values():
                connection.stop()

    def note(self, trouble: str) -> None:
        """Why there is no connection, to be told when the peer is lost."""
        self._trouble = trouble

    def pause(self, pause_s: float) -> None:
        """Wait, but not longer than the session lasts."""
        with self.lock:
            if self.error is None:
                self.progress.wait(pause_s)

    # For connections, each from its thread.

    def has_work(self, connection: int) -> bool:
        """Whether there is something to send."""
        with self.lock:
            return self.stripes.has_work(connection) and not self._yields(connection)

    def next_frame(self, connection: int) -> Status | Bye | Piece | None:
        """What to send next."""
        with self.lock:
            frame = None if self._yields(connection) else self.stripes.next_frame(connection)
            self._frames_sent += frame is not None
            if frame is None or isinstance(frame, Piece):
                self.wake_one()
            return frame

    def status(self, connection: int) -> Status:
        """What to say when there is nothing to say."""
        with self.lock:
            self._frames_sent += 1
            return self.stripes.status(connection)

    def clogged(self, connection: int) -> None:
        """Somebody else shall have what this connection has no room for."""
        with self.lock:
            self.wake_one()

    def gives_up(self, connection: int) -> bool:
        """Whether one in doubt makes way for a new one: others hear something, or none does and this is the first.

        After a cut, TCP waits as long again as the cut has lasted before it tries; a new connection does not.
        """
        with self.lock:
            since_s = time.monotonic() - self._settings.doubt_s
            others_hear = any(one.heard_at_s > since_s for one in self.connections.values())
            return others_hear or self._lost == self._reconnects

    def frame_arrived(self, connection: int, frame: Frame) -> memoryview | None:
        """Take in a frame; returns where its payload goes."""
        with self.lock:
            self._frames_received += 1
            outbox = self.stripes.outbox
            size_bytes, free, first = outbox.acknowledged_bytes, outbox.free_bytes, outbox.first_unacknowledged
            place, stale = self.stripes.frame_arrived(connection, frame)
            if stale in self.connections:
                self.connections[stale].stop()
            if isinstance(frame, Status):
                self._tune(outbox.acknowledged_bytes - size_bytes)
            elif isinstance(frame, Bye):
                self._notify()
            # Who waits costs time when woken in vain.
            if outbox.free_bytes > free:
                self.room.notify_all()
            if outbox.first_unacknowledged > first:
                self.progress.notify_all()
            return place

    def _begin_buffer(self, header: Header, size_bytes: int) -> memoryview:
        self.on_coming(header)
        return self._allocate(header, size_bytes)

    def payload_arrived(self, connection: int) -> None:
        """A piece is complete."""
        with self.lock:
            self.stripes.payload_arrived(connection)
            if self.stripes.inbox.ready_bytes is not None:
                self.arrival.notify()

    # For the channel; the lock is held.

    @property
    def peer_closed(self) -> bool:
        """Whether the peer has said farewell."""
        return self.stripes.peer_farewell is not None

    @property
    def drained(self) -> bool:
        """Whether all that the peer sent before its farewell was received."""
        bye = self.stripes.peer_farewell
        return bye is not None and self.stripes.inbox.delivered >= bye.sent

    def closed_by_peer(self) -> ClosedError:
        """What to raise then."""
        bye = self.stripes.peer_farewell
        missing = 0 if bye is None else max(0, bye.sent - self.stripes.inbox.delivered)
        rest = f" before {missing} of its buffers had arrived" if missing else ""
        return ClosedError(f"{self.peer}: has closed the channel{rest}")

    def counters(self) -> Counters:
        """What has happened so far."""
        outbox, inbox = self.stripes.outbox, self.stripes.inbox
        return Counters(
            buffers_sent=outbox.next_number,
            buffers_received=inbox.delivered,
            bytes_sent=outbox.acknowledged_bytes,
            bytes_received=inbox.delivered_bytes,
            frames_sent=self._frames_sent,
            frames_received=self._frames_received,
            resends=outbox.resends,
            duplicates=inbox.duplicates,
            reconnects=self._reconnects,
            malformed=self._malformed,
            connections=len(self.connections),
        )

    def wake_one(self) -> None:
        """Have the connection whose turn it is look for work; when it has taken a piece, it does the same."""
        outbox = self.stripes.outbox
        if outbox.waiting and (able := [one for one in self._carriers() if not one.clogged and self._fits(one)]):
            min(able, key=lambda one: outbox.load_bytes(one.number)).wake()

    def _yields(self, number: int) -> bool:
        """Whether a piece is better left to another connection: one that has room, and less under way.

        Filling one after the other would leave the last bytes of a buffer behind a full TCP window, a round trip late,
        while other connections idle.
        """
        stripes = self.stripes
        if not stripes.outbox.waiting or stripes.has_words(number):
            return False
        if not self._fits(self.connections[number]):
            return True
        enough = stripes.outbox.load_bytes(number) - stripes.outbox.next_bytes
        return enough >= 0 and any(
            not one.clogged and stripes.outbox.load_bytes(one.number) <= enough and self._fits(one)
            for one in self._carriers()
            if one.number != number
        )

    def _fits(self, one: Connection) -> bool:
        """Whether the next piece would leave at once, as far as one knows.

        Behind a full window it would wait for an acknowledgement, while another connection's may come sooner. That
        costs time only at the end: while there is more for every connection, each has one piece beyond its window, so
        that none idles. Where a window does not hold two pieces there is nothing to choose.
        """
        outbox, window, lanes = self.stripes.outbox, one.window_bytes, self.stripes.lanes
        piece = outbox.next_bytes
        if lanes == 1 or window is None or window < 2 * piece or outbox.waiting_bytes > lanes * piece:
            return True
        return outbox.load_bytes(one.number) + piece <= window

    def _carriers(self) -> list[Connection]:
        return list(self.connections.values())[: self.stripes.lanes]

    def wait(self, condition: threading.Condition, ready: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Until it is ready; raises if that cannot come any more, or not in time."""
        end_s = time.monotonic() + deadline_s
        while not ready():
            limit_s = min(end_s, self._lost_at_s())
            if self.error is not None:
                raise self.error
            if self.peer_closed and not self.connections:
                raise self.closed_by_peer()
            left_s = limit_s - time.monotonic()
            if left_s > 0:
                condition.wait(left_s)
            elif limit_s == end_s:
                raise DeadlineError(f"{self.peer}: {what} within {deadline_s:g} s")

    def end(self, error: TransportError) -> None:
        """From now on every call raises this."""
        if self.error is None:
            self.error = error
        self._notify()
        for connection in self.connections.values():
            connection.wake()

    def _lost_at_s(self) -> float:
        """When the peer will be lost if nothing happens; ends the session if that is now."""
        if self.connections:
            # Each connection watches over itself and ends when it hears nothing.
            return float("inf")
        limit_s = self._heard_at_s + self._settings.peer_timeout_s
        if self.error is None and not self.peer_closed and (now_s := time.monotonic()) >= limit_s:
            because = f"; the last trouble was: {self._trouble}" if self._trouble else ""
            silence = f"silent for {now_s - self._heard_at_s:.1f} s, allowed are {self._settings.peer_timeout_s:g} s"
            self.end(PeerLostError(f"{self.peer}: lost: {silence}{because}"))
        return limit_s

    def _notify(self) -> None:
        for condition in (self.room, self.arrival, self.progress):
            condition.notify_all()

    def _tune(self, acknowledged_bytes: int) -> None:
        if self._tuner is None:
            return
        if acknowledged_bytes:
            outbox, before = self.stripes.outbox, self.stripes.lanes
            more = outbox.first_unacknowledged < outbox.next_number
            self.stripes.lanes = self._tuner.acknowledged(time.monotonic(), acknowledged_bytes, more)
            self.stripes.wanted = self.stripes.lanes
            if self.stripes.lanes > before:
                self.wake_one()
        self._aim()

    def _aim(self) -> None:
        if self._tuner is not None:
            self._target = min(self._settings.max_connections, max(self._tuner.lanes, self.stripes.peer_wants))
        if self.on_target is not None and self._target > len(self.connections):
            self.on_target(self._target)
