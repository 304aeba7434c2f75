"""Which shard goes by which member: an owner deals its buffers' shards to the paths that are there. Pure.

A path is named by the member it goes over; the owner's own is the one without relays. The next shard goes by the path
with the least on its way, up to a limit, so equal paths get equal parts and a slow one gets less. Shards on a path that
is lost are dealt again, and so are those on a path that has fallen silent while others deliver; whoever gathers drops
what comes twice.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from geotrain.transport.errors import FrameError
from geotrain.transport.outbox import OVERHEAD_BYTES
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.pool.words import Shard

Key = tuple[int, int]
"""A shard of this owner: number of the buffer, offset."""


def cut(size_bytes: int, paths: int, pooling: Pooling) -> int:
    """The size of a shard: all alike, as many for every path, several for each, none too small.

    Were the last one short, its path would be done before the others.
    """
    if size_bytes <= pooling.min_chunk_bytes:
        return max(1, size_bytes)
    each = -(-size_bytes // paths)
    most = min(pooling.chunk_bytes, max(pooling.min_chunk_bytes, -(-each // pooling.shards_per_path)))
    return -(-each // -(-each // most))


@dataclass(slots=True)
class _Buffer:
    data: memoryview
    chunk_bytes: int
    missing: set[int]

    def part(self, offset: int) -> memoryview:
        return self.data[offset : offset + self.chunk_bytes]


@dataclass(slots=True)
class _Path:
    carried: dict[Key, int] = field(default_factory=dict)
    """Shards on their way and their sizes."""
    bytes: int = 0
    behind_s: float | None = None
    """How long others have been delivering and this one has not; None if it has since."""
    silent: bool = False

    def owes(self, number: int) -> bool:
        """Whether it carries a shard of this buffer or an earlier one; later ones may have to wait for their turn."""
        return bool(self.carried) and next(iter(self.carried))[0] <= number


class Dealer:
    """An owner's buffers until the counterpart has all of them."""

    def __init__(self, me: int, members: Sequence[int], pooling: Pooling) -> None:
        self.next_number = 0
        self.resends = 0
        self.acknowledged_bytes = 0
        self._me = me
        self._count = len(members)
        self._pooling = pooling
        self._buffers: dict[int, _Buffer] = {}
        self._paths = {member: _Path() for member in members}
        self._fresh: list[Key] = []
        self._again: list[Key] = []
        self._charges: dict[int, int] = {}
        """What each buffer that the counterpart's application has not taken counts in the window."""
        self._charged_bytes = 0
        self._heard_at_s = 0.0
        self._looked_at_s = math.inf

    @property
    def paths(self) -> list[int]:
        """Those that are not lost."""
        return list(self._paths)

    @property
    def first_unacknowledged(self) -> int:
        """All buffers below this number have arrived."""
        return min(self._buffers, default=self.next_number)

    def has_room(self, size_bytes: int) -> bool:
        """Whether the window takes another buffer; an empty one takes any."""
        charge = size_bytes + OVERHEAD_BYTES
        return not self._charges or self._charged_bytes + charge <= self._pooling.window_bytes

    def add(self, data: memoryview) -> int:
        """Take a buffer and return its number."""
        number, self.next_number = self.next_number, self.next_number + 1
        usable = [path for path in self._paths.values() if not path.silent]
        chunk = cut(len(data), max(1, len(usable)), self._pooling)
        offsets = range(0, max(1, len(data)), chunk)
        self._buffers[number] = _Buffer(data, chunk, set(offsets))
        for offset in offsets:
            heapq.heappush(self._fresh, (number, offset))
        self._charges[number] = len(data) + OVERHEAD_BYTES
        self._charged_bytes += self._charges[number]
        return number

    def taken(self, count: int) -> None:
        """The counterpart's application has received the first `count` buffers: the window moves on."""
        if count > self.next_number:
            raise FrameError(f"took {count} buffers, but only {self.next_number} were sent")
        while self._charges and (first := next(iter(self._charges))) < count:
            self._charged_bytes -= self._charges.pop(first)

    def deal(self) -> Iterator[tuple[int, Shard, memoryview]]:
        """Shards that can go now, each with its path."""
        while (key := self._next()) is not None and (path := self._choose(key)) is not None:
            number, offset = key
            buffer = self._buffers[number]
            part = buffer.part(offset)
            self._remove(key)
            self._paths[path].carried[key] = len(part)
            self._paths[path].bytes += len(part)
            yield path, Shard(owner=self._me, number=number, offset=offset, total_bytes=len(buffer.data)), part

    def still(self, path: int, shard: Shard) -> bool:
        """Whether a shard dealt to this path, and not yet sent, shall go by it; if not, it is withdrawn."""
        if path not in self._paths:
            return False
        buffer = self._buffers.get(shard.number)
        if buffer is not None and shard.offset in buffer.missing:
            return True
        # Dealt again in the meantime, and the other one was faster.
        self._landed(path, (shard.number, shard.offset))
        self._paths[path].behind_s = None
        return False

    def acknowledged(self, number: int, offset: int, path: int, now_s: float) -> None:
        """The counterpart has the shard, and it came by this path."""
        if path in self._paths:
            mine = self._paths[path]
            self._landed(path, (number, offset))
            mine.behind_s, mine.silent = None, False
            # A pause of all paths, while others have their turn, says nothing about one of them.
            passed_s = min(now_s - self._heard_at_s, self._pooling.patience_s / 4)
            self._heard_at_s = now_s
            for other in self._paths.values():
                if other is not mine and other.owes(number):
                    other.behind_s = 0.0 if other.behind_s is None else other.behind_s + passed_s
        buffer = self._buffers.get(number)
        if buffer is None or offset not in buffer.missing:
            return
        buffer.missing.remove(offset)
        self.acknowledged_bytes += len(buffer.part(offset))
        if not buffer.missing:
            del self._buffers[number]

    def lost(self, path: int) -> None:
        """The path is broken for good; what was on it goes by others."""
        gone = self._paths.pop(path, None)
        if gone is not None:
            self._deal_again(gone)

    def look(self, now_s: float) -> None:
        """Deal again what is on paths that have fallen silent; to be called now and then."""
        passed_s, self._looked_at_s = max(0.0, now_s - self._looked_at_s), now_s
        for path in self._paths.values():
            if path.silent or path.behind_s is None or not path.carried:
                continue
            if self._alone(path):
                path.behind_s += passed_s
            if path.behind_s >= self._pooling.patience_s:
                path.silent = True
                self._deal_again(path)

    def _alone(self, path: _Path) -> bool:
        """Whether only this one still owes shards of its oldest buffer: then nobody else will deliver any."""
        number = next(iter(path.carried))[0]
        return not any(other.owes(number) for other in self._paths.values() if other is not path and not other.silent)

    def _deal_again(self, path: _Path) -> None:
        waiting = set(self._again)
        for key in path.carried:
            elsewhere = any(key in other.carried for other in self._paths.values() if not other.silent)
            buffer = self._buffers.get(key[0])
            if buffer is not None and key[1] in buffer.missing and not elsewhere and key not in waiting:
                heapq.heappush(self._again, key)

    def _landed(self, path: int, key: Key) -> None:
        self._paths[path].bytes -= self._paths[path].carried.pop(key, 0)

    def _next(self) -> Key | None:
        while self._again and not self._wanted(self._again[0]):
            heapq.heappop(self._again)
        return min((queue[0] for queue in (self._again, self._fresh) if queue), default=None)

    def _wanted(self, key: Key) -> bool:
        """Whether dealing it again is of use: it is missing, and there is a path that does not carry it already."""
        buffer = self._buffers.get(key[0])
        untried = any(key not in path.carried for path in self._paths.values())
        return buffer is not None and key[1] in buffer.missing and untried

    def _remove(self, key: Key) -> None:
        again = bool(self._again) and self._again[0] == key
        heapq.heappop(self._again if again else self._fresh)
        self.resends += again

    def _choose(self, key: Key) -> int | None:
        """The path with the least on its way, one's own first; None if all are full."""
        buffer = self._buffers[key[0]]
        able = {name: path for name, path in self._paths.items() if key not in path.carried}
        able = {name: path for name, path in able.items() if not path.silent} or able
        if len(buffer.data) <= buffer.chunk_bytes and self._me in able:
            # A single shard gains nothing from a relay.
            able = {self._me: able[self._me]}
        best = min(able, key=lambda name: (able[name].bytes, (name - self._me) % self._count), default=None)
        if best is None:
            return None
        full = able[best].carried and able[best].bytes + len(buffer.part(key[1])) > self._pooling.path_bytes
        return None if full else best
