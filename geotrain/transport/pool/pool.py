"""A channel that crosses the WAN on all nodes of its cell at once: `Member` behind a lock, and lines with threads."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from geotrain.errors import InputError
from geotrain.transport.checksum import Buffer
from geotrain.transport.counters import Counters
from geotrain.transport.errors import ClosedError, DeadlineError, TransportError
from geotrain.transport.header import Header
from geotrain.transport.interface import Channel, Message
from geotrain.transport.pool.line import Line
from geotrain.transport.pool.member import Member
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.pool.words import Item


def pooled(
    *, member: int, lan: Mapping[int, Channel], wan: Channel, job: str, pooling: Pooling | None = None
) -> Channel:
    """The channel of one node of a cell to its counterpart; without cell peers that is the plain one.

    `lan` has the channels to the cell peers by their numbers, which are the places of their pipelines in the cell;
    counterparts have the same number. The pool closes the channels when it is closed.
    """
    return Pool(member=member, lan=lan, wan=wan, job=job, pooling=pooling) if lan else wan


class Pool:
    """Keeps what `interface.Channel` promises, towards the counterpart; and relays for the cell peers while it is open.

    PeerLostError names the counterpart; a cell peer that dies costs its bandwidth and nothing else, until all join a
    new pool: a path that is lost does not come back. After the pool has failed or was closed it relays no more.
    """

    def __init__(
        self, *, member: int, lan: Mapping[int, Channel], wan: Channel, job: str, pooling: Pooling | None = None
    ) -> None:
        if member in lan:
            raise InputError(f"member {member} has itself among its cell peers")
        self._pooling = pooling = pooling or Pooling()
        self._me = member
        self._wan = wan
        self._member = Member(member, sorted([member, *lan]), job=job, pooling=pooling)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waited_for: list[Callable[[], bool]] = []
        self._looked_at_s = time.monotonic()
        self._tick_s = pooling.patience_s / 4
        self._closed = False
        self._lines = {
            number: Line(
                number,
                channel,
                self,
                ahead_bytes=pooling.wire_bytes,
                tick_s=self._tick_s,
                rate_bytes_per_s=pooling.rate_bytes_per_s if channel is wan else None,
            )
            for number, channel in {**lan, member: wan}.items()
        }
        self._work = {number: threading.Condition(self._lock) for number in self._lines}
        for line in self._lines.values():
            line.start()

    # What the application calls.

    @property
    def peer(self) -> str:
        """The counterpart's node name."""
        return self._wan.peer

    @property
    def counters(self) -> Counters:
        """What has happened so far, to whole buffers; `connections` counts paths."""
        with self._lock:
            dealer, gatherer = self._member.dealer, self._member.gatherer
            return Counters(
                buffers_sent=dealer.next_number,
                buffers_received=gatherer.delivered,
                bytes_sent=dealer.acknowledged_bytes,
                bytes_received=gatherer.delivered_bytes,
                resends=dealer.resends,
                duplicates=gatherer.duplicates,
                connections=len(dealer.paths),
            )

    @property
    def relayed_bytes(self) -> int:
        """What this node has passed on for its peers."""
        return self._member.relayed_bytes

    @property
    def held_bytes(self) -> int:
        """Shards that wait here for a line, its own among them."""
        with self._lock:
            return self._member.held_bytes

    def send(self, header: Header, data: Buffer, *, deadline_s: float) -> int:
        """Hand over a buffer; waits while the window is full."""
        view = memoryview(data).cast("B")
        if len(view) > self._pooling.max_buffer_bytes:
            raise InputError(f"a buffer of {len(view)} bytes: a pool takes {self._pooling.max_buffer_bytes}")
        with self._lock:
            self._check()
            self._wait(lambda: self._member.dealer.has_room(len(view)), deadline_s, "no room in the window")
            number = self._member.send(header, view)
            self._wake()
        return number

    def flush(self, *, deadline_s: float, number: int | None = None) -> None:
        """Wait until the counterpart has the buffers up to this number, or all of them."""
        dealer = self._member.dealer
        with self._lock:
            end = dealer.next_number if number is None else number + 1
            what = f"buffer {dealer.first_unacknowledged} not acknowledged"
            self._wait(lambda: dealer.first_unacknowledged >= end, deadline_s, what)

    def receive(self, *, deadline_s: float, into: memoryview | None = None) -> Message:
        """The next buffer, in order."""
        with self._lock:
            self._wait(lambda: self._member.gatherer.ready_bytes is not None, deadline_s, "no buffer")
            size_bytes = self._member.gatherer.ready_bytes
            assert size_bytes is not None
            if into is not None and into.nbytes < size_bytes:
                raise InputError(f"the next buffer has {size_bytes} bytes, but there is room for {into.nbytes}")
            message = self._member.receive()
            assert message is not None
            self._wake()
        if into is None:
            return message
        place = into.cast("B")[:size_bytes]
        place[:] = message.data
        return Message(header=message.header, data=place)

    def foretell(self, coming: Callable[[Header], None]) -> None:
        """Have `coming` called when a buffer has set out."""
        with self._lock:
            self._member.gatherer.on_coming = coming

    def close(self, *, deadline_s: float = 5.0) -> None:
        """Flush and pass on as far as the deadline allows, and end; the peers route around."""
        end_s = time.monotonic() + deadline_s
        with suppress(TransportError):
            self.flush(deadline_s=deadline_s)
            with self._lock:
                self._wait(lambda: not any(map(self._member.has_work, self._lines)), end_s - time.monotonic(), "")
        with self._lock:
            self._closed = True
            self._notify()
        for line in self._lines.values():
            line.channel.close(deadline_s=max(0.0, end_s - time.monotonic()))
        for line in self._lines.values():
            line.join(max(0.1, end_s - time.monotonic()))

    def __enter__(self) -> Self:
        """The pool; closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # What lines call, each from its threads.

    def arrived(self, line: int, message: Message) -> None:
        """A message has come over a line."""
        with self._lock:
            self._member.arrived(line, message.header, message.data, time.monotonic())
            self._wake()

    def next_item(self, line: int) -> Item | None:
        """What goes over a line next, waited for; None when there will be nothing more."""
        with self._lock:
            while not self._closed and self._member.is_open(line):
                item = self._member.next(line)
                if item is not None:
                    return item
                self._tell()
                self._work[line].wait()
            return None

    def lost(self, line: int, error: TransportError) -> None:
        """A line is gone."""
        with self._lock:
            self._member.lost(line, error)
            self._notify()

    def look(self) -> None:
        """Time has passed: has a path fallen silent?"""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked_at_s >= self._tick_s:
                self._looked_at_s = now_s
                self._member.look(now_s)
                self._wake()

    # Within the lock.

    def _wake(self) -> None:
        for line, work in self._work.items():
            if self._member.has_work(line):
                work.notify()
        self._tell()

    def _tell(self) -> None:
        """Who waits costs time when woken in vain."""
        if any(ready() for ready in self._waited_for):
            self._changed.notify_all()

    def _notify(self) -> None:
        for work in self._work.values():
            work.notify_all()
        self._changed.notify_all()

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"the channel to {self.peer} was closed on this side")
        if self._member.error is not None:
            raise self._member.error

    def _wait(self, ready: Callable[[], bool], deadline_s: float, what: str) -> None:
        end_s = time.monotonic() + deadline_s
        self._waited_for.append(ready)
        try:
            while not ready():
                self._check()
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise DeadlineError(f"{self.peer}: {what} within {deadline_s:g} s")
                self._changed.wait(left_s)
        finally:
            self._waited_for.remove(ready)
