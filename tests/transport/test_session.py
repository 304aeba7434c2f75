"""Who sends the next piece: turns among connections without sockets, in any order of what can happen to them."""

import random
import socket
import threading
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.transport import Settings, TcpChannel
from geotrain.transport.frame import FRAME_BYTES, Hello, Status
from geotrain.transport.inbox import fresh_memory
from geotrain.transport.outbox import Piece
from geotrain.transport.session import Session
from tests.transport.pairs import JOB, header, soon

CHUNK = 4096
SETTINGS = Settings(connections=4, chunk_bytes=CHUNK, min_chunk_bytes=CHUNK)


def session() -> Session:
    hello = Hello(
        job=JOB,
        node="b",
        channel="c",
        session=bytes(16),
        window_bytes=SETTINGS.window_bytes,
        max_buffer_bytes=SETTINGS.max_buffer_bytes,
        max_chunk_bytes=CHUNK,
        peer_timeout_ms=SETTINGS.peer_timeout_ms,
    )
    return Session(mine=hello, theirs=hello, settings=SETTINGS, allocate=fresh_memory)


@dataclass
class Actor:
    """A connection's part in this: it looks for work while awake, and asks once more before it sleeps."""

    number: int
    awake: bool = True
    dozing: bool = False
    """Between falling asleep and asking once more."""
    clogged: bool = False
    room: bool = True
    window: int | None = None
    """What TCP would say ..."""
    window_bytes: int | None = None
    """... and what it said when the actor last looked."""
    pieces: int = 0
    wakes: int = 0

    def wake(self) -> None:
        if not self.awake and not self.clogged:
            self.awake = True
            self.wakes += 1


class Play:
    """A session and what its connections do, one step at a time."""

    def __init__(self, connections: int = 0) -> None:
        self.session = session()
        self.opened = 0
        for _ in range(connections):
            self.open()

    @property
    def actors(self) -> list[Actor]:
        return cast("list[Actor]", list(self.session.connections.values()))

    @property
    def waiting(self) -> bool:
        return self.session.stripes.outbox.waiting

    def hears_soon(self, actor: Actor) -> bool:
        """Whether something is on its way whose acknowledgement will wake it."""
        return self.session.stripes.outbox.load_bytes(actor.number) > 0

    def open(self) -> Actor:
        actor = Actor(self.opened)
        self.session.connections[actor.number] = cast(Any, actor)
        self.session.stripes.opened(actor.number)
        self.opened += 1
        return actor

    def close(self, actor: Actor) -> None:
        del self.session.connections[actor.number]
        self.session.stripes.closed(actor.number)
        self.session.wake_one()

    def send(self, pieces: int) -> None:
        self.session.stripes.send(header(), memoryview(bytes(pieces * CHUNK)))
        self.session.wake_one()

    def clog(self, actor: Actor) -> None:
        if not actor.clogged:
            actor.clogged = True
            self.session.clogged(actor.number)

    def look(self, actor: Actor) -> bool:
        """Take a piece if there is room, otherwise fall asleep; whether it got one."""
        if actor.room:
            actor.clogged = False
            actor.window_bytes = actor.window
            while isinstance(frame := self.session.next_frame(actor.number), Status):
                pass
            if isinstance(frame, Piece):
                actor.pieces += 1
                return True
        else:
            self.clog(actor)
        actor.awake, actor.dozing = False, True
        return False

    def doze(self, actor: Actor) -> None:
        actor.dozing = False
        if self.session.has_work(actor.number):
            if actor.room:
                actor.awake = True
            else:
                self.clog(actor)

    def drain(self, actor: Actor) -> None:
        actor.room = True
        actor.awake |= actor.clogged

    def acknowledge(self, actor: Actor) -> None:
        self.session.frame_arrived(actor.number, Status(acknowledged=actor.pieces, taken=0, connections=1))
        actor.awake = True

    def use(self, lanes: int) -> None:
        self.session.stripes.lanes = lanes
        self.session.wake_one()

    def step(self, what: str, actor: Actor, number: int) -> None:
        match what:
            case "open":
                self.open()
            case "close":
                self.close(actor)
            case "send":
                self.send(number)
            case "look" if actor.awake:
                self.look(actor)
            case "doze" if actor.dozing:
                self.doze(actor)
            case "fill":
                actor.room = False
            case "drain":
                self.drain(actor)
            case "acknowledge":
                self.acknowledge(actor)
            case "use":
                self.use(number)
            case "window":
                actor.window = (number - 1) * CHUNK

    def run(self) -> int:
        """Until all sleep; how often one of them looked."""
        looks = 0
        while active := [actor for actor in self.actors if actor.awake or actor.dozing]:
            for actor in active:
                if actor.dozing:
                    self.doze(actor)
                if actor.awake:
                    looks += 1
                    self.look(actor)
        return looks


STEPS = {"open": 2, "close": 1, "send": 10, "fill": 5, "drain": 5, "acknowledge": 5, "use": 1, "look": 40, "doze": 40}
STEPS["window"] = 5


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(0, 500))
def test_a_piece_that_can_be_sent_is_never_forgotten(seed: int, steps: int):
    luck = random.Random(seed)
    play = Play(connections=luck.randrange(5))
    for what in luck.choices(list(STEPS), list(STEPS.values()), k=steps):
        actor = luck.choice(play.actors) if play.actors else play.open()
        play.step(what, actor, luck.randrange(1, 5))
        carriers = play.actors[: play.session.stripes.lanes]
        somebody = any(actor.awake or actor.dozing for actor in play.actors)
        blocked = all(actor.clogged or (actor.window_bytes and play.hears_soon(actor)) for actor in carriers)
        assert not play.waiting or somebody or blocked
    play.open()
    for actor in play.actors:
        play.drain(actor)
    pieces = sum(actor.pieces for actor in play.actors)
    looks = play.run()
    while play.waiting:
        assert any(map(play.hears_soon, play.actors))
        for actor in play.actors:
            play.acknowledge(actor)
        play.run()
    # Nobody is woken in vain again and again: per piece, each looks once at most.
    pieces = sum(actor.pieces for actor in play.actors) - pieces
    assert looks <= (pieces + 2) * len(play.actors)


def test_who_leaves_a_piece_to_another_wakes_only_that_one():
    play = Play(connections=3)
    first, second, third = play.actors
    play.send(6)
    play.run()
    assert [actor.pieces for actor in play.actors] == [2, 2, 2]
    before = [actor.wakes for actor in play.actors]
    play.acknowledge(second)  # awake, but something keeps it from looking
    play.send(1)
    first.awake = True
    assert not play.look(first)
    assert not play.session.has_work(first.number)
    assert [actor.wakes for actor in play.actors] == before
    second.room = False
    play.look(second)
    assert (first.awake, third.awake) == (True, False)
    assert play.look(first)


def test_the_last_pieces_wait_for_the_window_that_opens_first():
    play = Play(connections=2)
    first, second = play.actors
    for actor in play.actors:
        actor.window = 2 * CHUNK + 2 * FRAME_BYTES
    play.send(9)
    play.run()
    # While there was more for every connection, one had a piece beyond its window; the last ones can go either way.
    assert [actor.pieces for actor in play.actors] == [3, 2]
    play.acknowledge(second)
    play.run()
    assert [actor.pieces for actor in play.actors] == [3, 4]
    play.acknowledge(first)
    play.run()
    assert [actor.pieces for actor in play.actors] == [5, 4] and not play.waiting


def test_a_burst_is_spread_over_idle_connections():
    shared = session()
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = []
        for _ in range(4):
            near = socket.create_connection(server.getsockname())
            threading.Thread(target=shared.serve, args=(near,)).start()
            far.append(server.accept()[0])
    assert soon(lambda: len(shared.connections) == 4)
    channel = TcpChannel(shared)
    channel.send(header(), bytes(20 * CHUNK), deadline_s=30)
    channel.send(header(), bytes(4 * CHUNK), deadline_s=30)
    # Nobody acknowledges anything.
    assert soon(lambda: not shared.stripes.outbox.waiting)
    assert [shared.stripes.outbox.load_bytes(number) for number in range(4)] == [6 * (CHUNK + FRAME_BYTES)] * 4
    for sock in far:
        sock.close()
    channel.close(deadline_s=0)
    assert soon(lambda: not shared.connections)
