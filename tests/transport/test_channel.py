"""What every channel promises: over TCP, over TLS and in memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geotrain.errors import InputError
from geotrain.transport import Channel, ClosedError, Credentials, DeadlineError, Identity, Message, Settings
from geotrain.transport.keys import make_keys
from geotrain.transport.memory import memory_pair
from tests.transport.pairs import JOB, QUICK, header, tcp_pair

MANY = replace(QUICK, connections=4)
SMALL_WINDOW = replace(QUICK, window_bytes=300_000, max_buffer_bytes=100_000)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys")
    make_keys(directory, job=JOB, nodes=["a", "b"], days=1)
    return directory


@pytest.fixture(params=["memory", "tcp", "tls"])
def pair(request: pytest.FixtureRequest, keys: Path):
    @contextmanager
    def make(settings: Settings = QUICK) -> Iterator[tuple[Channel, Channel]]:
        if request.param == "memory":
            one, other = memory_pair(settings=settings)
            with one, other:
                yield one, other
        elif request.param == "tcp":
            with tcp_pair(settings) as ends:
                yield ends
        else:
            identities = {node: Identity(job=JOB, node=node, credentials=Credentials(keys / node)) for node in "ab"}
            with tcp_pair(settings, **identities) as ends:
                yield ends

    return make


def noise(size: int, seed: int = 0) -> memoryview:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).data


def test_both_know_each_other(pair):
    with pair() as (a, b):
        assert (a.peer, b.peer) == ("b", "a")


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 3_000_000])
def test_a_buffer_arrives_whole_with_its_header(pair, size: int):
    with pair() as (a, b):
        data = noise(size)
        assert a.send(header(7), data, deadline_s=30) == 0
        message = b.receive(deadline_s=30)
        assert (message.header, bytes(message.data)) == (header(7), bytes(data))
        a.flush(deadline_s=30)


def test_order_is_kept_both_ways_at_once(pair):
    with pair(MANY) as (a, b):
        sizes = [(n * 7919) % 300_000 for n in range(60)]

        def send(channel: Channel) -> None:
            for n, size in enumerate(sizes):
                channel.send(header(n), noise(size, n), deadline_s=30)

        senders = [threading.Thread(target=send, args=(channel,)) for channel in (a, b)]
        for sender in senders:
            sender.start()
        for n, size in enumerate(sizes):
            for channel in (a, b):
                message = channel.receive(deadline_s=30)
                assert (message.header.microbatch, message.data) == (n, noise(size, n))
        for sender in senders:
            sender.join()


def test_the_counters_count(pair):
    with pair() as (a, b):
        a.send(header(), b"hello", deadline_s=30)
        b.receive(deadline_s=30)
        a.flush(deadline_s=30)
        assert (a.counters.buffers_sent, a.counters.bytes_sent) == (1, 5)
        assert (b.counters.buffers_received, b.counters.bytes_received) == (1, 5)
        troubles = ("resends", "duplicates", "reconnects", "malformed")
        assert [getattr(end.counters, name) for end in (a, b) for name in troubles] == [0] * 8


def test_receive_into_memory_that_is_there(pair):
    with pair() as (a, b):
        place = np.zeros(10, np.uint8)
        a.send(header(3), b"123456", deadline_s=30)
        message = b.receive(deadline_s=30, into=place.data)
        assert (message.header, bytes(message.data)) == (header(3), b"123456")
        assert bytes(place) == b"123456\0\0\0\0"


def test_a_buffer_too_large_for_the_place_stays_for_the_next_call(pair):
    with pair() as (a, b):
        a.send(header(), b"123456", deadline_s=30)
        with pytest.raises(InputError, match=r"^the next buffer has 6 bytes, but there is room for 5$"):
            b.receive(deadline_s=30, into=memoryview(bytearray(5)))
        assert bytes(b.receive(deadline_s=30).data) == b"123456"


def test_tensors_of_any_type_are_bytes(pair):
    with pair() as (a, b):
        tensor = np.arange(12, dtype=np.float32).reshape(3, 4)
        a.send(header(), tensor.data, deadline_s=30)
        assert np.array_equal(np.frombuffer(b.receive(deadline_s=30).data, np.float32).reshape(3, 4), tensor)


def test_a_slow_receiver_makes_the_sender_wait(pair):
    with pair(SMALL_WINDOW) as (a, b):
        data = noise(90_000)
        for n in range(3):
            a.send(header(n), data, deadline_s=30)
        a.flush(deadline_s=30)  # all have arrived, but the window stays full until they are taken
        with pytest.raises(DeadlineError, match=r"^b: no room in the window within 0.05 s$"):
            a.send(header(3), data, deadline_s=0.05)
        assert b.receive(deadline_s=30).header.microbatch == 0
        a.send(header(3), data, deadline_s=30)
        assert [b.receive(deadline_s=30).header.microbatch for _ in range(3)] == [1, 2, 3]


def test_a_buffer_beyond_the_limit_is_refused_before_it_is_sent(pair):
    with pair(SMALL_WINDOW) as (a, _), pytest.raises(InputError, match="a buffer of 100001 bytes"):
        a.send(header(), noise(100_001), deadline_s=30)


def test_nothing_to_receive_is_a_deadline(pair):
    with pair() as (a, b):
        with pytest.raises(DeadlineError, match=r"^a: no buffer within 0.02 s$"):
            b.receive(deadline_s=0.02)
        a.send(header(), b"late", deadline_s=30)
        assert bytes(b.receive(deadline_s=30).data) == b"late"


def test_what_was_sent_before_the_close_still_arrives(pair):
    with pair() as (a, b):
        data = noise(2_000_000)
        for n in range(3):
            a.send(header(n), data, deadline_s=30)
        a.close()
        messages: list[Message] = [b.receive(deadline_s=30) for _ in range(3)]
        assert [message.data == data for message in messages] == [True] * 3
        with pytest.raises(ClosedError, match=r"^a: has closed the channel$"):
            b.receive(deadline_s=30)
        with pytest.raises(ClosedError, match=r"^a: has closed the channel$"):
            b.send(header(), b"", deadline_s=30)


def test_a_close_ends_a_call_that_waits_on_the_other_side(pair):
    with pair() as (a, b):
        closer = threading.Thread(target=a.close)
        closer.start()
        with pytest.raises(ClosedError):
            b.receive(deadline_s=30)
        closer.join()


def test_a_closed_channel_says_so(pair):
    with pair() as (a, _):
        a.close()
        a.close()
        with pytest.raises(ClosedError, match=r"^the channel to b was closed on this side$"):
            a.send(header(), b"", deadline_s=30)


def test_flush_of_one_number_waits_for_that_one_only(pair):
    with pair() as (a, b):
        first = a.send(header(), b"1", deadline_s=30)
        a.flush(deadline_s=30, number=first)
        second = a.send(header(), b"2", deadline_s=30)
        a.flush(deadline_s=30, number=second)
        assert [bytes(b.receive(deadline_s=30).data) for _ in range(2)] == [b"1", b"2"]
