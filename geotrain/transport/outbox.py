"""What one side sends: buffers cut into pieces, dealt to whichever connection has room, kept until acknowledged.

Pure: no sockets, no clock, no threads. Data is never copied; a buffer is let go when its last piece is acknowledged.
"""

import heapq
from collections import deque
from dataclasses import dataclass

from geotrain.transport.errors import FrameError
from geotrain.transport.frame import FRAME_BYTES, LEAST_CHUNK_BYTES
from geotrain.transport.header import Header

OVERHEAD_BYTES = 1024
"""What a buffer counts in the window besides its data, so that empty ones are bounded too."""
_PIECES_PER_CONNECTION = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a buffer, ready to be sent."""

    header: Header
    number: int
    offset: int
    total_bytes: int
    chunk_bytes: int
    data: memoryview


@dataclass(slots=True)
class _Buffer:
    header: Header
    data: memoryview
    chunk_bytes: int
    pieces_left: int

    def piece(self, number: int, offset: int) -> Piece:
        data = self.data[offset : offset + self.chunk_bytes]
        return Piece(self.header, number, offset, len(self.data), self.chunk_bytes, data)


def cut(size_bytes: int, connections: int, least: int, most: int) -> int:
    """How to cut: fine enough that all connections get some and end together, coarse enough to cost nothing.

    All pieces alike: a short last one would make one connection's load uneven.
    """
    fair = -(-size_bytes // (connections * _PIECES_PER_CONNECTION))
    largest = min(most, max(least, fair))
    pieces = max(1, -(-size_bytes // largest))
    return max(min(largest, LEAST_CHUNK_BYTES), -(-size_bytes // pieces))


class Outbox:
    """Buffers on their way out, and which connection holds which piece."""

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.next_number = 0
        self.acknowledged_bytes = 0
        self.resends = 0
        self._buffers: dict[int, _Buffer] = {}
        self._fresh: deque[tuple[int, int]] = deque()
        self._again: list[tuple[int, int]] = []
        self._flying: dict[int, deque[tuple[int, int]]] = {}
        self._counts: dict[int, int] = {}
        self._loads: dict[int, int] = {}
        self.waiting_bytes = 0
        """Of pieces that no connection has taken."""
        self._taken = 0
        self._charges: deque[int] = deque()
        self._charged_bytes = 0

    @property
    def free_bytes(self) -> int:
        """What is left of the window."""
        return self.window_bytes - self._charged_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether the window takes another buffer; an empty one takes any."""
        return not self._charges or size_bytes + OVERHEAD_BYTES <= self.free_bytes

    def add(self, header: Header, data: memoryview, chunk: int) -> int:
        """Queue a buffer and return its number; the first one is 0."""
        number, self.next_number = self.next_number, self.next_number + 1
        pieces = max(1, -(-len(data) // chunk))
        self._buffers[number] = _Buffer(header, data, chunk, pieces)
        self._fresh.append((number, 0))
        self.waiting_bytes += len(data)
        self._charges.append(len(data) + OVERHEAD_BYTES)
        self._charged_bytes += self._charges[-1]
        return number

    @property
    def first_unacknowledged(self) -> int:
        """All buffers below this number have arrived."""
        return next(iter(self._buffers), self.next_number)

    @property
    def waiting(self) -> bool:
        """Whether there is a piece that no connection has taken."""
        return bool(self._fresh or self._again)

    @property
    def next_bytes(self) -> int:
        """At most so much has the piece that `take` gives next, with its frame."""
        number = self._again[0][0] if self._again else self._fresh[0][0]
        return self._buffers[number].chunk_bytes + FRAME_BYTES

    def opened(self, connection: int) -> None:
        """A connection is there."""
        self._flying[connection] = deque()
        self._counts[connection] = 0
        self._loads[connection] = 0

    def load_bytes(self, connection: int) -> int:
        """What this connection has taken and the peer not yet acknowledged."""
        return self._loads[connection]

    def take(self, connection: int) -> Piece | None:
        """The next piece for this connection: what another one lost comes first."""
        if self._again:
            place = heapq.heappop(self._again)
            self.resends += 1
        elif self._fresh:
            place = self._cut()
        else:
            return None
        self._flying[connection].append(place)
        piece = self._buffers[place[0]].piece(*place)
        self._loads[connection] += len(piece.data) + FRAME_BYTES
        self.waiting_bytes -= len(piece.data)
        return piece

    def _cut(self) -> tuple[int, int]:
        number, offset = self._fresh.popleft()
        buffer = self._buffers[number]
        if offset + buffer.chunk_bytes < len(buffer.data):
            self._fresh.appendleft((number, offset + buffer.chunk_bytes))
        return number, offset

    def acknowledged(self, connection: int, count: int) -> None:
        """The peer has the first `count` pieces that went over this connection."""
        flying = self._flying[connection]
        new = count - self._counts[connection]
        if not 0 <= new <= len(flying):
            raise FrameError(f"acknowledges {new} pieces more, but {len(flying)} are on their way")
        self._counts[connection] = count
        for _ in range(new):
            number, offset = flying.popleft()
            buffer = self._buffers[number]
            size_bytes = min(buffer.chunk_bytes, len(buffer.data) - offset)
            self._loads[connection] -= size_bytes + FRAME_BYTES
            self.acknowledged_bytes += size_bytes
            buffer.pieces_left -= 1
            if not buffer.pieces_left:
                del self._buffers[number]

    def taken(self, count: int) -> None:
        """The peer's application has received the first `count` buffers: the window moves on."""
        if count > self.next_number:
            raise FrameError(f"took {count} buffers, but only {self.next_number} were sent")
        # Statuses of different connections overtake each other; an older one says nothing new.
        while self._taken < count:
            self._charged_bytes -= self._charges.popleft()
            self._taken += 1

    def closed(self, connection: int) -> None:
        """A connection is gone; what it had not delivered for sure is sent again."""
        for place in self._flying.pop(connection, ()):
            heapq.heappush(self._again, place)
            self.waiting_bytes += len(self._buffers[place[0]].piece(*place).data)
        self._counts.pop(connection, None)
        self._loads.pop(connection, None)
