"""One node of a pool without its channels: events in, what each channel sends next out. Pure.

Lines are channels by number: a member's own number is its line over the WAN to its counterpart, any other the line to
that cell peer. A path over member m begins with line m on both sides:

    owner ──line m──▶ relay m ──WAN──▶ its counterpart ──line owner──▶ the owner's counterpart        (over a relay)
    owner ──WAN──▶ the owner's counterpart                                                           (its own path)

Openings and receipts go over the owner's own WAN line only: that one is essential, its loss is the end of the pool for
its owner. A lost relay costs its bandwidth. Who loses its WAN line tells its cell peers, who loses a cell peer tells
its counterpart, so both ends of every path know; both stop using it, whichever direction broke.
"""

from collections.abc import Sequence

from geotrain.transport.errors import FrameError, TransportError
from geotrain.transport.header import Header
from geotrain.transport.interface import Message
from geotrain.transport.pool.dealing import Dealer
from geotrain.transport.pool.gathering import Gatherer
from geotrain.transport.pool.settings import Pooling
from geotrain.transport.pool.turns import Turns
from geotrain.transport.pool.words import Down, Item, Opening, Place, Receipt, Shard, Word, unwrap, wrap


class Member:
    """Owner of its own buffers, relay for its peers', and the place where its counterpart's buffers come together."""

    def __init__(self, me: int, members: Sequence[int], *, job: str, pooling: Pooling) -> None:
        self.dealer = Dealer(me, members, pooling)
        self.gatherer = Gatherer(pooling)
        self.relayed_bytes = 0
        self.error: TransportError | None = None
        """Why the WAN line is gone."""
        self._me = me
        self._job = job
        self._lines = {member: Turns(job) for member in members}
        self._places: list[Place] = []
        self._told_taken = 0

    # What the application does.

    def send(self, header: Header, data: memoryview) -> int:
        """Take a buffer; the dealer has room for it."""
        number = self.dealer.add(data)
        self._say(self._me, Opening(number=number, header=header, total_bytes=len(data)))
        self._deal()
        return number

    def receive(self) -> Message | None:
        """The next buffer in order, if it is whole."""
        return self.gatherer.pop()

    # What the lines do.

    def arrived(self, line: int, header: Header, data: memoryview, now_s: float) -> None:
        """Something has come over a line; FrameError if it must not."""
        word = unwrap(header, data)
        match word:
            case Shard():
                self._shard(line, word, header, data)
            case Opening() if line == self._me:
                self.gatherer.opened(word)
            case Receipt() if line == self._me:
                for place in word.places:
                    self.dealer.acknowledged(*place, now_s)
                self.dealer.taken(word.taken)
            case Down() if word.member != self._me and line in (self._me, word.member):
                self.dealer.lost(word.member)
            case _:
                raise FrameError(f"says what it must not say: {word}")
        self._deal()

    def lost(self, line: int, error: TransportError) -> None:
        """A line is gone for good."""
        if not self._lines[line].open:
            return
        self._lines[line].close()
        self.dealer.lost(line)
        if line == self._me:
            self.error = error
            for peer in self._lines:
                self._say(peer, Down(member=self._me))
        else:
            self._say(self._me, Down(member=line))
        self._deal()

    def look(self, now_s: float) -> None:
        """Time has passed."""
        self.dealer.look(now_s)
        self._deal()

    def has_work(self, line: int) -> bool:
        """Whether `next` may have something."""
        return bool(self._lines[line]) or (line == self._me and self._has_news)

    def next(self, line: int) -> Item | None:
        """What goes over a line next."""
        if line == self._me and self._has_news:
            self._tell_news()
        while (entry := self._lines[line].pop()) is not None:
            shard, item = entry
            if shard is None or shard.owner != self._me or self.dealer.still(line, shard):
                return item
        return None

    def is_open(self, line: int) -> bool:
        """Whether the line is not lost."""
        return self._lines[line].open

    @property
    def held_bytes(self) -> int:
        """Shards that wait here for a line."""
        return sum(turns.shard_bytes for turns in self._lines.values())

    def _shard(self, line: int, shard: Shard, header: Header, data: memoryview) -> None:
        if shard.owner == self._me:
            self.gatherer.land(shard, data)
            # Also for what came twice: it says that the path works.
            self._places.append(Place(shard.number, shard.offset, line))
        elif line == self._me and shard.owner in self._lines:
            self._pass_on(shard.owner, shard, header, data)
        elif line == shard.owner:
            self._pass_on(self._me, shard, header, data)
        else:
            raise FrameError(f"a shard of member {shard.owner} came from member {line}")

    def _pass_on(self, line: int, shard: Shard, header: Header, data: memoryview) -> None:
        self.relayed_bytes += len(data)
        self._lines[line].put(shard, data, header)

    def _deal(self) -> None:
        if self.error is not None:
            return
        for path, shard, data in self.dealer.deal():
            self._lines[path].put(shard, data)

    def _say(self, line: int, word: Word) -> None:
        self._lines[line].say(*wrap(self._job, word))

    @property
    def _has_news(self) -> bool:
        return self._lines[self._me].open and bool(self._places or self._told_taken < self.gatherer.delivered)

    def _tell_news(self) -> None:
        self._told_taken = self.gatherer.delivered
        self._say(self._me, Receipt(taken=self._told_taken, places=tuple(self._places)))
        self._places.clear()
