"""Two sides, and a network between them that loses connections whenever it likes."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.transport.errors import FrameError
from geotrain.transport.frame import Bye, Data, Status
from geotrain.transport.header import Direction, Header
from geotrain.transport.inbox import Limits
from geotrain.transport.outbox import OVERHEAD_BYTES, Piece, cut
from geotrain.transport.stripes import Stripes

HEADER = Header(job="j", step=0, pipeline=0, stage=0, microbatch=0, direction=Direction.FORWARD)
CHUNK = 16
WINDOW = 5 * OVERHEAD_BYTES


def side() -> Stripes:
    given = Limits(
        job="j",
        window_bytes=WINDOW,
        max_buffer_bytes=200,
        chunk_bytes=CHUNK,
        allocate=lambda header, size: memoryview(bytearray(size)),
        least_chunk_bytes=4,
    )
    stripes = Stripes(given, send_window_bytes=WINDOW, chunk_bytes=CHUNK, min_chunk_bytes=CHUNK)
    stripes.lanes = 8
    return stripes


def content(number: int, size: int) -> bytes:
    return bytes((number * 31 + place) % 251 for place in range(size))


@dataclass
class Wire:
    """One connection: what is on its way to each side, and who still believes in it."""

    queues: tuple[deque[Any], deque[Any]] = field(default_factory=lambda: (deque(), deque()))
    believes: list[bool] = field(default_factory=lambda: [True, True])
    broken: bool = False


class Network:
    def __init__(self, sizes: tuple[list[int], list[int]]) -> None:
        self.sides = side(), side()
        self.sizes = sizes
        self.sent = [0, 0]
        self.got: tuple[list[bytes], list[bytes]] = ([], [])
        self.wires: list[Wire] = []

    def open(self) -> None:
        self.wires.append(Wire())
        for stripes in self.sides:
            stripes.opened(len(self.wires) - 1)

    def lose(self, number: int, who: int) -> None:
        """One side notices that a connection is dead; what is on its way to the other may still arrive there."""
        wire = self.wires[number]
        if wire.believes[who]:
            wire.believes[who] = False
            wire.queues[who].clear()
            wire.broken = True
            self.sides[who].closed(number)

    def send(self, who: int) -> None:
        number = self.sent[who]
        if number < len(self.sizes[who]) and self.sides[who].outbox.has_room(self.sizes[who][number]):
            self.sides[who].send(HEADER, memoryview(content(number, self.sizes[who][number])))
            self.sent[who] += 1

    def speak(self, number: int, who: int) -> bool:
        wire = self.wires[number]
        if not wire.believes[who] or (frame := self.sides[who].next_frame(number)) is None:
            return False
        if not wire.broken:
            wire.queues[1 - who].append(frame)
        return True

    def hear(self, number: int, who: int) -> bool:
        """Take in a frame, or the payload of the one before."""
        wire = self.wires[number]
        if not wire.believes[who] or not wire.queues[who]:
            return False
        item = wire.queues[who].popleft()
        stripes = self.sides[who]
        if isinstance(item, Piece):
            shape = (item.number, item.offset, item.total_bytes, item.chunk_bytes)
            names = ("number", "offset", "total_bytes", "chunk_bytes")
            data = Data(header=item.header, checksum=0, **dict(zip(names, shape, strict=True)))
            place, stale = stripes.frame_arrived(number, data)
            wire.queues[who].appendleft((place, bytes(item.data)))
            if stale is not None:
                self.lose(stale, who)
        elif isinstance(item, tuple):
            item[0][:] = item[1]
            stripes.payload_arrived(number)
        else:
            stripes.frame_arrived(number, item)
        return True

    def receive(self, who: int) -> bool:
        message = self.sides[who].receive()
        if message is None:
            return False
        self.got[who].append(bytes(message.data))
        # Whoever received the data may do with it what he likes.
        message.data[:] = b"!" * len(message.data)
        return True

    def settle(self) -> None:
        """No more trouble: everything must get through over one new connection."""
        for number, wire in enumerate(self.wires):
            if wire.broken:
                self.lose(number, 0)
                self.lose(number, 1)
        self.open()
        busy = True
        while busy:
            busy = False
            for who in (0, 1):
                self.send(who)
                for number in range(len(self.wires)):
                    busy |= self.speak(number, who)
                    busy |= self.hear(number, who)
                busy |= self.receive(who)

    def check_memory(self) -> None:
        for stripes in self.sides:
            assert stripes.outbox._charged_bytes <= WINDOW
            assert stripes.inbox._charged_bytes <= WINDOW


ACTIONS = {"open": 1, "lose": 2, "send": 10, "speak": 40, "hear": 60, "receive": 10}


def play(seed: int, steps: int, sizes: tuple[list[int], list[int]]) -> Network:
    """Random actions, most of them on the latest connections; then peace."""
    luck = random.Random(seed)
    network = Network(sizes)
    network.open()
    for action in luck.choices(list(ACTIONS), list(ACTIONS.values()), k=steps):
        number = max(0, len(network.wires) - 1 - luck.randrange(4))
        who = luck.randrange(2)
        match action:
            case "open":
                network.open()
            case "lose":
                network.lose(number, who)
            case "send":
                network.send(who)
            case "speak":
                network.speak(number, who)
            case "hear":
                network.hear(number, who)
            case "receive":
                network.receive(who)
        network.check_memory()
    network.settle()
    return network


SIZES = st.lists(st.integers(0, 150), min_size=1, max_size=20)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(0, 1000), SIZES, SIZES)
def test_nothing_is_lost_nothing_comes_twice_and_order_is_kept(
    seed: int, steps: int, there: list[int], back: list[int]
):
    network = play(seed, steps, (there, back))
    for who in (0, 1):
        sizes = network.sizes[1 - who]
        assert network.got[who] == [content(number, size) for number, size in enumerate(sizes)]
        outbox, inbox = network.sides[who].outbox, network.sides[who].inbox
        assert (outbox.first_unacknowledged, outbox.waiting) == (len(network.sizes[who]), False)
        assert (outbox._charged_bytes, inbox._charged_bytes, inbox._buffers) == (0, 0, {})


def test_the_story_above_has_trouble_in_it():
    """Otherwise it would prove nothing."""
    networks = [play(seed, 1000, ([100] * 20, [100] * 20)) for seed in range(20)]
    sides = [side for network in networks for side in network.sides]
    assert sum(side.outbox.resends for side in sides) > 200
    assert sum(side.inbox.duplicates for side in sides) > 100


def test_a_slow_connection_does_not_hold_up_the_others():
    network = Network(([160], []))
    network.open()
    network.open()
    network.send(0)
    network.speak(0, 0)
    while network.speak(1, 0):
        pass
    assert [len(wire.queues[1]) for wire in network.wires] == [1, 9]


def test_a_piece_that_is_stuck_arrives_by_another_way_and_the_stuck_connection_is_named():
    sender, receiver = side(), side()
    for number in (0, 1):
        receiver.opened(number)
        sender.opened(number)
    sender.send(HEADER, memoryview(content(0, 10)))
    piece = sender.next_frame(0)
    assert isinstance(piece, Piece)
    data = Data(header=HEADER, number=0, offset=0, total_bytes=10, chunk_bytes=CHUNK, checksum=0)
    stuck, _ = receiver.frame_arrived(0, data)
    assert stuck is not None
    stuck[:5] = b"wrong"
    sender.closed(0)
    assert sender.next_frame(1) == piece
    place, stale = receiver.frame_arrived(1, data)
    assert stale == 0
    assert place is not None
    place[:] = piece.data
    receiver.payload_arrived(1)
    assert receiver.receive() is None  # connection 0 could still write into the buffer
    receiver.closed(0)
    message = receiver.receive()
    assert message is not None
    assert bytes(message.data) == content(0, 10)


def test_only_so_many_connections_carry_data():
    network = Network(([160], []))
    network.sides[0].lanes = 2
    for _ in range(3):
        network.open()
    network.send(0)
    assert [network.speak(number, 0) for number in range(3)] == [True, True, False]
    network.lose(0, 0)
    assert network.speak(2, 0)


def test_acknowledgements_come_before_the_farewell():
    network = Network(([10], []))
    network.open()
    network.send(0)
    network.speak(0, 0)
    network.hear(0, 1)
    network.hear(0, 1)
    network.sides[1].farewell = bye = Bye(sent=0)
    said = [network.sides[1].next_frame(0) for _ in range(3)]
    assert said == [Status(acknowledged=1, taken=0, connections=1), bye, None]


def data(**changes) -> Data:
    fields = {"header": HEADER, "number": 0, "offset": 0, "total_bytes": 100, "chunk_bytes": CHUNK, "checksum": 0}
    return Data(**{**fields, **changes})


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        pytest.param([data(total_bytes=201)], "a buffer of 201 bytes, at most 200 are accepted", id="large buffer"),
        pytest.param([data(chunk_bytes=17)], "a piece of 17 bytes, at most 16 are accepted", id="large piece"),
        pytest.param([data(chunk_bytes=3)], "cut into pieces of 3 bytes is cut too fine", id="tiny pieces"),
        pytest.param([data(), data(total_bytes=50, offset=16)], "contradict each other", id="two sizes"),
        pytest.param([data(number=n) for n in range(9)], "sends more than the window", id="beyond the window"),
        pytest.param(
            [data(header=Header(job="k", step=0, pipeline=0, stage=0, microbatch=0, direction=Direction.FORWARD))],
            "a buffer of job 'k', this is 'j'",
            id="another job",
        ),
        pytest.param([Status(acknowledged=1, taken=0, connections=1)], "acknowledges 1 pieces more", id="ack"),
        pytest.param([Status(acknowledged=0, taken=1, connections=1)], "took 1 buffers", id="taken"),
    ],
)
def test_a_peer_that_breaks_the_rules_is_told_which(frames, complaint: str):
    stripes = side()
    stripes.opened(0)
    with pytest.raises(FrameError) as error:
        for frame in frames:
            place, _ = stripes.frame_arrived(0, frame)
            if place is not None:
                stripes.payload_arrived(0)
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("size", "connections", "expected"),
    [
        pytest.param(64 << 20, 1, 1 << 20, id="large"),
        pytest.param(4 << 20, 16, 64 << 10, id="many connections"),
        pytest.param(32 << 20, 16, 128 << 10, id="in between"),
        pytest.param(10, 4, 512, id="small"),
        pytest.param(150_000, 4, 50_000, id="alike"),
    ],
)
def test_buffers_are_cut_so_that_all_connections_get_some(size: int, connections: int, expected: int):
    assert cut(size, connections, 64 << 10, 1 << 20) == expected
