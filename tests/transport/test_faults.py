"""What happens to a channel when connections and processes die; the peer is a process of its own."""

import random
import signal
import socket
import threading
from dataclasses import replace

import numpy as np
import pytest

from geotrain.errors import InputError
from geotrain.transport import (
    DeadlineError,
    Header,
    Listener,
    Message,
    PeerLostError,
    Settings,
    TcpChannel,
    TransportError,
    connect,
    session,
)
from geotrain.transport.frame import FRAME_BYTES, LEAST_FRAME_BYTES, Hello, Status, decode, encode
from tests.transport.chaos import Chaos
from tests.transport.pairs import IMPATIENT, QUICK, header, insecure, soon, tcp_pair
from tests.transport.peer import Digest, running_peer

pytestmark = pytest.mark.slow


MANY = replace(QUICK, connections=4, max_backoff_s=0.05, chunk_bytes=32 << 10, min_chunk_bytes=8192)


def dial(address: tuple[str, int], settings: Settings) -> TcpChannel:
    return connect(*address, identity=insecure("a"), peer="b", channel="c", settings=settings, deadline_s=30)


def exchange(channel: TcpChannel, chaos: Chaos, transfers: int, *, trouble_every: int) -> tuple[str, str]:
    """Send many buffers through trouble and get them back: digests of what went and of what came."""
    luck = random.Random(1)
    pool = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8).data
    came = Digest()

    def receive() -> None:
        for n in range(transfers):
            came.add(channel.receive(deadline_s=60))
            if n % trouble_every == 0:
                assert soon(chaos.kill_one)

    receiver = threading.Thread(target=receive)
    receiver.start()
    went = Digest()
    for n in range(transfers):
        start, size = luck.randrange(1 << 19), luck.choice([0, 10, 5_000, 100_000, 400_000])
        message = Message(header=header(n), data=pool[start : start + size])
        went.add(message)
        channel.send(message.header, message.data, deadline_s=60)
    receiver.join()
    return went.text, came.text


def test_connections_die_at_random_and_nothing_is_lost_or_comes_twice():
    with running_peer("echo", MANY) as peer, Chaos(peer.address) as chaos:
        with dial(chaos.address, MANY) as channel:
            went, came = exchange(channel, chaos, 300, trouble_every=5)
            channel.flush(deadline_s=30)
            counters = channel.counters
        there = peer.line()
    assert went == came == there
    assert counters.buffers_sent == counters.buffers_received == 300
    assert counters.reconnects > 0


def test_what_a_dead_connection_had_not_delivered_is_sent_again():
    with (
        running_peer("echo", MANY) as peer,
        Chaos(peer.address) as chaos,
        dial(chaos.address, MANY) as channel,
    ):
        assert soon(lambda: channel.counters.connections == MANY.connections)
        # What goes now stays in the connections, which then die with it.
        chaos.stick()
        data = np.random.default_rng(3).integers(0, 256, 100_000, np.uint8).data
        channel.send(header(), data, deadline_s=30)
        assert soon(lambda: not channel._session.stripes.outbox.waiting)
        assert channel.counters.bytes_sent == 0
        chaos.kill_all()
        assert channel.receive(deadline_s=30).data == data
        channel.flush(deadline_s=30)
        counters = channel.counters
    assert counters.bytes_sent == len(data)
    assert counters.resends >= len(data) // MANY.chunk_bytes
    assert counters.reconnects > 0


def test_all_connections_die_at_once_and_come_back():
    with (
        running_peer("echo", MANY) as peer,
        Chaos(peer.address) as chaos,
        dial(chaos.address, MANY) as channel,
    ):
        for n in range(5):
            channel.send(header(n), b"x" * 1000, deadline_s=30)
            chaos.kill_all()
            assert channel.receive(deadline_s=30).header.microbatch == n


def test_connections_that_are_stuck_make_way_for_new_ones_long_before_the_peer_counts_as_lost():
    patient = replace(MANY, peer_timeout_s=240.0)
    with (
        running_peer("echo", patient) as peer,
        Chaos(peer.address) as chaos,
        dial(chaos.address, patient) as channel,
    ):
        assert soon(lambda: channel.counters.connections == patient.connections)
        chaos.stick()
        for n in range(8):
            channel.send(header(n), b"x" * 1000, deadline_s=30)
        assert [channel.receive(deadline_s=30).header.microbatch for n in range(8)] == list(range(8))
        assert soon(lambda: channel.counters.reconnects >= 4)


def test_a_changed_bit_closes_the_connection_is_counted_and_the_data_is_right():
    with running_peer("echo", MANY) as peer, Chaos(peer.address) as chaos:
        with dial(chaos.address, MANY) as channel:
            data = np.random.default_rng(2).integers(0, 256, 1_000_000, np.uint8).data
            for n in range(20):
                chaos.corrupt_one()
                channel.send(header(n), data, deadline_s=30)
                assert channel.receive(deadline_s=30).data == data
            assert channel.counters.reconnects > 0
        assert peer.line().startswith("20 ")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_peer_that_dies_is_noticed_and_named(how: signal.Signals):
    with running_peer("echo", IMPATIENT) as peer, dial(peer.address, IMPATIENT) as channel:
        channel.send(header(), b"hello", deadline_s=30)
        channel.receive(deadline_s=30)
        peer.process.send_signal(how)
        # Before the call's own deadline; how soon on a quiet machine is a benchmark.
        with pytest.raises(PeerLostError, match=r"^b: lost: silent for \d+\.\d s, allowed are 2 s; the last trouble"):
            channel.receive(deadline_s=30)
        with pytest.raises(PeerLostError):
            channel.send(header(), b"", deadline_s=30)


def test_the_listening_side_notices_too():
    with Listener(identity=insecure("b"), settings=IMPATIENT) as listener:
        with Chaos(listener.address) as chaos:
            dialer = dial(chaos.address, IMPATIENT)
            channel = listener.accept(deadline_s=30)
        with pytest.raises(PeerLostError, match=r"^a: lost: silent for "):
            channel.receive(deadline_s=30)
        with pytest.raises(PeerLostError, match=r"^b: lost: silent for .* the last trouble was: Connection refused$"):
            dialer.receive(deadline_s=30)


def test_a_peer_that_starts_anew_is_not_taken_for_the_old_one():
    with Listener(identity=insecure("b"), settings=QUICK) as listener:
        first = dial(listener.address, QUICK)
        old = listener.accept(deadline_s=30)
        second = dial(listener.address, QUICK)
        new = listener.accept(deadline_s=30)
        with pytest.raises(PeerLostError, match=r"^a: has started anew$"):
            old.receive(deadline_s=30)
        with pytest.raises(PeerLostError, match=r"^b: has closed the channel or started anew$"):
            first.receive(deadline_s=30)
        second.send(header(), b"new", deadline_s=30)
        assert bytes(new.receive(deadline_s=30).data) == b"new"
        for channel in (first, second, new):
            channel.close()


def test_a_buffer_of_another_job_is_refused_before_it_is_sent():
    with tcp_pair() as (a, _), pytest.raises(InputError, match=r"^a buffer of job 'k': this channel belongs to 'j'$"):
        a.send(replace(header(), job="k"), b"", deadline_s=30)


def test_a_slow_reader_bounds_the_memory_of_both():
    settings = replace(MANY, window_bytes=16 << 20, max_buffer_bytes=4 << 20, chunk_bytes=1 << 20)
    with running_peer("idle", settings) as peer, dial(peer.address, settings) as channel:
        data = np.zeros(1 << 20, np.uint8).data
        sent = Digest()
        with pytest.raises(DeadlineError):
            for n in range(100):
                channel.send(header(n), data, deadline_s=0.5)
                sent.add(Message(header=header(n), data=data))
        assert sent.count == 15
        peer.go()
        assert int(peer.line()) < 32 << 20
        channel.close()
        assert peer.line() == sent.text


def test_memory_that_cannot_be_had_ends_every_call():
    def allocate(header: Header, size_bytes: int) -> memoryview:
        raise MemoryError("no more")

    with (
        Listener(identity=insecure("b"), settings=QUICK, allocate=allocate) as listener,
        dial(listener.address, QUICK) as a,
        listener.accept(deadline_s=30) as b,
    ):
        a.send(header(), b"x", deadline_s=30)
        with pytest.raises(TransportError, match=r"^this side of the channel to a failed: MemoryError\('no more'\)$"):
            b.receive(deadline_s=30)


def test_the_less_patient_side_hears_often_enough(monkeypatch: pytest.MonkeyPatch):
    # By its own patience the listening side would speak every few minutes only.
    monkeypatch.setattr(session, "_MOST_PING_S", 600.0)
    monkeypatch.setattr("geotrain.transport.settings._MOST_DOUBT_S", 600.0)
    patient = replace(QUICK, peer_timeout_s=4000.0)
    hello = Hello(
        job="j",
        node="a",
        channel="c",
        session=bytes(16),
        window_bytes=1,
        max_buffer_bytes=1,
        max_chunk_bytes=4096,
        peer_timeout_ms=400,
    )
    with (
        Listener(identity=insecure("b"), settings=patient) as listener,
        socket.create_connection(listener.address, timeout=30) as impatient,
    ):
        impatient.sendall(encode(hello))
        assert isinstance(decode(impatient.recv(FRAME_BYTES, socket.MSG_WAITALL)), Hello)
        for _ in range(5):
            assert isinstance(decode(impatient.recv(LEAST_FRAME_BYTES, socket.MSG_WAITALL)), Status)


def test_a_dialer_with_auto_opens_what_the_listener_wants():
    with (
        Listener(identity=insecure("b"), settings=replace(QUICK, connections=3)) as listener,
        dial(listener.address, replace(QUICK, connections="auto")) as a,
        listener.accept(deadline_s=30) as b,
    ):
        assert soon(lambda: a.counters.connections == b.counters.connections == 3)
