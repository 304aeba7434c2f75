"""Two cells of members without threads: what goes over each line is delivered in an order that the test chooses."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from geotrain.transport import PeerLostError
from geotrain.transport.pool.member import Member
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.pool.words import Item
from tests.transport.pool.cells import JOB, SMALL

Place = tuple[str, int]
"""A node: side n or f, number."""
Choose = Callable[[int], int]
"""A number below the given one."""


class Net:
    """Lines keep their order and lose what is on them when they are cut; a time passes only when told."""

    def __init__(self, size: int, pooling: Pooling = SMALL) -> None:
        numbers = range(size)
        self.size = size
        self.members = {
            (side, n): Member(n, numbers, job=JOB, pooling=replace(pooling)) for side in "nf" for n in numbers
        }
        self.flying: dict[tuple[Place, Place], deque[Item]] = {}
        for side in "nf":
            for n in numbers:
                for m in numbers:
                    self.flying[(side, n), self.other_end((side, n), m)] = deque()
        self.now_s = 0.0
        self.deliveries = 0

    @staticmethod
    def other_end(place: Place, line: int) -> Place:
        side, n = place
        return ("f" if side == "n" else "n", n) if line == n else (side, line)

    @staticmethod
    def line(place: Place, other: Place) -> int:
        return place[1] if place[0] != other[0] else other[1]

    def steps(self) -> list[tuple[Place, Place]]:
        """Where something can be sent or delivered."""
        return [
            (one, other)
            for one, other in self.flying
            if self.flying[one, other] or self.members[one].has_work(self.line(one, other))
        ]

    def step(self, choose: Choose) -> bool:
        """Send or deliver one thing somewhere; whether there was anything."""
        steps = self.steps()
        if not steps:
            return False
        one, other = steps[choose(len(steps))]
        item = self.members[one].next(self.line(one, other)) if choose(2) or not self.flying[one, other] else None
        if item is not None:
            self.flying[one, other].append(item)
        elif self.flying[one, other]:
            header, data = self.flying[one, other].popleft()
            self.members[other].arrived(self.line(other, one), header, memoryview(data), self.now_s)
            self.deliveries += 1
        return True

    def cut(self, one: Place, other: Place) -> None:
        """A line is lost at both ends, with all that is on it."""
        for here, there in ((one, other), (other, one)):
            if (here, there) in self.flying:
                del self.flying[here, there]
                self.members[here].lost(self.line(here, there), PeerLostError(f"{there[0]}{there[1]}: lost"))

    def kill(self, place: Place) -> None:
        """A node is gone; the others notice."""
        for one, other in list(self.flying):
            if one == place:
                self.cut(one, other)
