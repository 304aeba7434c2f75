"""The emulated WAN on a clock that is passed in: rates, queues, delay, and fair sharing of a link's capacity.

Knows sizes and times; what a packet is made of, devices and the real clock are the forwarder's. Rates are kept in
virtual time, so a process that wakes up late delivers late but loses no bandwidth.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

MOST_HELD_BYTES = 2e9
"""Of all packets under way together: the emulator's memory, not a property of any link."""


@dataclass(kw_only=True, slots=True)
class Counters:
    """What a line has done so far, in packets on the wire."""

    packets: int = 0
    bytes: int = 0
    dropped: int = 0
    lost: int = 0


@dataclass(kw_only=True, eq=False, slots=True)
class Line:
    """What the lanes between two data centers share, one direction."""

    name: tuple[str, str]
    delay_s: float
    capacity: float = math.inf
    queue_bytes: float = math.inf
    loss: float = 0.0
    luck: random.Random = field(default_factory=lambda: random.Random(0))
    cut: bool = False
    counters: Counters = field(default_factory=Counters)
    free_at: float = 0.0
    serving: bool = False
    virtual: float = 0.0
    waiting: list[tuple[float, int, Lane]] = field(default_factory=list)
    until_loss: int = 0

    def __post_init__(self) -> None:
        self.until_loss = self.draw()

    def draw(self) -> int:
        """After how many more segments the next one is lost, counting that one: a geometric variable."""
        if self.loss <= 0:
            return 1 << 62
        if self.loss >= 1:
            return 1
        return 1 + int(math.log(1.0 - self.luck.random()) / math.log1p(-self.loss))


@dataclass(kw_only=True, eq=False, slots=True)
class Lane:
    """One node to another."""

    line: Line
    rate: float = math.inf
    queue_s: float = math.inf
    """What may wait for the lane's rate, as time at that rate."""
    place: Any = None
    """Where packets go; the forwarder's."""
    free_at: float = 0.0
    queue: deque[tuple[int, int, Any]] = field(default_factory=deque)
    """Waiting for the line's capacity: size, segments, packet."""
    queued_bytes: int = 0
    tag: float = 0.0


class Shaper:
    """Takes packets in, gives them back when they have crossed the WAN."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, bool, Lane, int, int, Any]] = []
        self._count = 0
        self.held_bytes = 0

    def next_at(self) -> float:
        """When something is due next; infinite if nothing is under way."""
        return self._events[0][0] if self._events else math.inf

    def overtake(self, now: float, lane: Lane, size: int, packet: Any) -> None:
        """A packet that passes all queues, as sparse traffic does where queueing is fair; it still uses bandwidth.

        Acknowledgements go this way. Behind the data of the other direction, they would tie both directions together.
        """
        line = lane.line
        if line.cut or self.held_bytes > MOST_HELD_BYTES:
            line.counters.dropped += 1
            return
        lane.free_at = max(lane.free_at, now) + size / lane.rate
        line.free_at += size / line.capacity
        self.held_bytes += size
        self._add(now + line.delay_s, True, lane, size, 1, packet)

    def push(self, now: float, lane: Lane, size: int, segments: int, packet: Any) -> None:
        """A packet leaves its node; it is dropped if a queue in its way is full."""
        line = lane.line
        start = lane.free_at if lane.free_at > now else now
        if line.cut or start - now > lane.queue_s or self.held_bytes > MOST_HELD_BYTES:
            line.counters.dropped += segments
            return
        lane.free_at = left = start + size / lane.rate
        self.held_bytes += size
        if line.capacity == math.inf:
            self._add(left + line.delay_s, True, lane, size, segments, packet)
        else:
            self._add(left, False, lane, size, segments, packet)

    def due(self, now: float) -> list[tuple[Lane, Any]]:
        """What has arrived by now, in order of arrival."""
        arrived = []
        events = self._events
        while events and events[0][0] <= now:
            at, _, arrives, lane, size, segments, packet = heapq.heappop(events)
            if not arrives:
                self._enter(at, lane, size, segments, packet)
                continue
            self.held_bytes -= size
            if lane.line.cut:
                lane.line.counters.dropped += segments
                continue
            lane.line.counters.packets += segments
            lane.line.counters.bytes += size
            arrived.append((lane, packet))
        return arrived

    def _add(self, at: float, arrives: bool, lane: Lane, size: int, segments: int, packet: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, arrives, lane, size, segments, packet))

    def _enter(self, at: float, lane: Lane, size: int, segments: int, packet: Any) -> None:
        # An event without a packet says that the line has become free.
        line = lane.line
        if packet is None:
            line.serving = False
        else:
            share = line.queue_bytes / max(1, len(line.waiting) + (not lane.queue))
            if lane.queued_bytes + size > share and lane.queue:
                line.counters.dropped += segments
                self.held_bytes -= size
                return
            if not lane.queue:
                self._wait(lane)
            lane.queue.append((size, segments, packet))
            lane.queued_bytes += size
        if not line.serving and line.waiting:
            self._serve(at, line)

    def _wait(self, lane: Lane) -> None:
        # Start-time fair queueing: who has been served least, by bytes, goes first.
        lane.tag = max(lane.tag, lane.line.virtual)
        self._count += 1
        heapq.heappush(lane.line.waiting, (lane.tag, self._count, lane))

    def _serve(self, at: float, line: Line) -> None:
        line.virtual, _, lane = heapq.heappop(line.waiting)
        size, segments, packet = lane.queue.popleft()
        lane.queued_bytes -= size
        lane.tag = line.virtual + size
        if lane.queue:
            self._wait(lane)
        line.free_at = max(at, line.free_at) + size / line.capacity
        line.serving = True
        self._add(line.free_at, False, lane, 0, 0, None)
        self._add(line.free_at + line.delay_s, True, lane, size, segments, packet)
