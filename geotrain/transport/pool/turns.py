"""Whose turn it is: what waits at a member for one of its channels, in the order in which it goes. Pure.

One buffer at a time: of those that wait, the one whose pipeline has sent least, then the lowest pipeline. As every
shard says how many buffers its owner sent before this one, each member knows the order from the shards alone: no
coordinator, no messages, no list. Where all owners keep to the plan, this is the plan's order. Where one is late, the
others do not wait for it, and when it comes it goes before what is later in the plan, also before the rest of a buffer
that has begun (the simulator lets that one finish): so all members agree again once its shards are with them.

The next buffer's shards wait here while the last ones of the buffer before are sent, so the wire does not idle between.
"""

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeVar

from geotrain.transport.checksum import Buffer
from geotrain.transport.header import Header
from geotrain.transport.pool.words import Item, Shard, wrap

_T = TypeVar("_T")


def turn(shard: Shard) -> tuple[int, int]:
    """The lowest goes first."""
    return shard.number, shard.owner


def planned(sends: Mapping[int, Sequence[_T]]) -> list[_T]:
    """The turns in which pipelines' buffers go when all of them wait from the beginning."""
    waiting = [(number, owner, send) for owner in sends for number, send in enumerate(sends[owner])]
    return [send for _, _, send in sorted(waiting, key=lambda entry: entry[:2])]


class Turns:
    """A queue for one channel: words first, as they came, then shards by turn."""

    def __init__(self, job: str) -> None:
        self.open = True
        self.shard_bytes = 0
        self._job = job
        self._words: deque[Item] = deque()
        self._shards: list[tuple[tuple[int, int], int, Shard, Header, Buffer]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._words or self._shards)

    def say(self, header: Header, data: Buffer) -> None:
        """Queue a word that is no shard."""
        if self.open:
            self._words.append((header, data))

    def put(self, shard: Shard, data: memoryview, header: Header | None = None) -> None:
        """Queue a shard; one that is passed on comes with the header it came with."""
        if not self.open:
            return
        header = header or wrap(self._job, shard)[0]
        # Equal turns, which are shards of one buffer, go as they came.
        heapq.heappush(self._shards, (turn(shard), self._count, shard, header, data))
        self._count += 1
        self.shard_bytes += len(data)

    def pop(self) -> tuple[Shard | None, Item] | None:
        """What goes next, and which shard that is if it is one."""
        if self._words:
            return None, self._words.popleft()
        if not self._shards:
            return None
        _, _, shard, header, data = heapq.heappop(self._shards)
        self.shard_bytes -= len(data)
        return shard, (header, data)

    def close(self) -> None:
        """Drop everything, now and later: the channel is gone."""
        self.open = False
        self.shard_bytes = 0
        self._words.clear()
        self._shards.clear()
