"""Who is let in, and what happens to those who are not."""

import socket
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.transport import DeadlineError, Identity, Listener, ListenerCounters, RefusedError, connect
from geotrain.transport.checksum import checksum
from geotrain.transport.frame import FRAME_BYTES, VERSION, Bye, Data, Frame, Hello, Status, decode, encode
from tests.transport.pairs import QUICK, header, insecure, soon, tcp_pair

PATIENCE_S = 30.0


@pytest.fixture
def listener():
    with Listener(identity=insecure("b"), settings=QUICK) as listener:
        yield listener


def hello(**changes) -> Hello:
    fields = {
        "job": "j",
        "node": "a",
        "channel": "c",
        "session": bytes(16),
        "max_chunk_bytes": 4096,
        "peer_timeout_ms": 1000,
    }
    return Hello(**{**fields, "window_bytes": 1, "max_buffer_bytes": 1, **changes})


def answer(listener: Listener, wire: bytes, *, end: bool = False) -> Frame | None:
    """What the listener says to these bytes before it hangs up; None if nothing."""
    with socket.create_connection(listener.address, timeout=PATIENCE_S) as sock:
        sock.sendall(wire)
        if end:
            sock.shutdown(socket.SHUT_WR)
        said = b""
        # Whoever is turned away at the door is reset, for nobody has read what he said.
        with suppress(ConnectionResetError):
            while len(said) < FRAME_BYTES and (part := sock.recv(FRAME_BYTES - len(said))):
                said += part
        return decode(said) if said else None


def test_loopback_unless_told(listener: Listener):
    assert listener.address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_sentence(listener: Listener):
    with pytest.raises(InputError, match=r"^cannot listen at 127.0.0.1:\d+: Address already in use$"):
        Listener(identity=insecure("b"), settings=QUICK, port=listener.address[1])


def test_security_is_on_unless_told():
    with pytest.raises(InputError, match=r"^a channel needs either the keys of this node"):
        Identity(job="j", node="a")


@pytest.mark.parametrize(
    ("wire", "reason", "count"),
    [
        pytest.param(encode(hello(job="k")), "this is job j, not k", "refused", id="another job"),
        pytest.param(encode(hello(resumes=True)), "unknown session", "refused", id="unknown session"),
        pytest.param(bytes(FRAME_BYTES), "not a frame: begins with b'\\x00\\x00\\x00\\x00'", "malformed", id="zeros"),
        pytest.param(b"GET / HTTP/1.1\r\n" * 20, "not a frame: begins with b'GET '", "malformed", id="http"),
        pytest.param(
            encode(Status(acknowledged=0, taken=0, connections=1)), "speaks before it greets", "malformed", id="status"
        ),
    ],
)
def test_who_does_not_belong_is_told_why_and_counted(listener: Listener, wire: bytes, reason: str, count: str):
    assert answer(listener, wire) == Bye(sent=0, reason=reason)
    assert soon(lambda: listener.counters == ListenerCounters(**{count: 1}))


def test_another_version_is_refused(listener: Listener):
    wire = bytearray(encode(hello()))
    wire[4] = 9
    wire[-4:] = checksum(wire[:-4]).to_bytes(4, "little")
    assert answer(listener, bytes(wire)) == Bye(
        sent=0, reason=f"speaks version 9 of the protocol, this side speaks {VERSION}"
    )
    assert soon(lambda: listener.counters == ListenerCounters(refused=1))


def test_half_a_greeting_is_counted(listener: Listener):
    assert answer(listener, encode(hello())[:50], end=True) is None
    assert soon(lambda: listener.counters == ListenerCounters(malformed=1))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wire=st.binary(max_size=600))
def test_whatever_comes_the_next_one_is_served(listener: Listener, wire: bytes):
    answer(listener, wire, end=True)
    assert isinstance(answer(listener, encode(hello()), end=True), Hello)


def test_who_says_nothing_is_not_waited_for_long():
    short = replace(QUICK, handshake_timeout_s=0.2)
    with Listener(identity=insecure("b"), settings=short, max_greetings=1) as listener:
        with socket.create_connection(listener.address, timeout=PATIENCE_S) as silent:
            assert decode(silent.recv(FRAME_BYTES)) == Bye(sent=0, reason="no greeting within the time set")
        assert soon(lambda: listener.counters == ListenerCounters(timed_out=1))
        assert soon(lambda: isinstance(answer(listener, encode(hello())), Hello))


def test_who_comes_while_all_places_are_taken_is_turned_away_at_once():
    with Listener(identity=insecure("b"), settings=QUICK, max_greetings=1) as listener:
        with socket.create_connection(listener.address, timeout=PATIENCE_S):
            # Whoever is waited for is told so in the end.
            assert answer(listener, b"") is None
        assert soon(lambda: listener.counters.refused == 1)
        assert soon(lambda: isinstance(answer(listener, encode(hello())), Hello))


def test_not_more_connections_than_allowed():
    limited = replace(QUICK, connections="auto", max_connections=2)
    with Listener(identity=insecure("b"), settings=limited) as listener:
        socks = [socket.create_connection(listener.address, timeout=PATIENCE_S) for _ in range(3)]
        for sock in socks[:2]:
            sock.sendall(encode(hello()))
            assert isinstance(decode(sock.recv(FRAME_BYTES, socket.MSG_WAITALL)), Hello)
        channel = listener.accept(deadline_s=PATIENCE_S)
        assert soon(lambda: channel.counters.connections == 2)
        socks[2].sendall(encode(hello()))
        reason = "has 2 connections already"
        assert decode(socks[2].recv(FRAME_BYTES, socket.MSG_WAITALL)) == Bye(sent=0, reason=reason)
        for sock in socks:
            sock.close()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(hello(), id="greets again"),
        pytest.param(Status(acknowledged=5, taken=0, connections=1), id="acknowledges nothing"),
        pytest.param(
            Data(header=header(), number=0, offset=0, total_bytes=1 << 62, chunk_bytes=1 << 20, checksum=0),
            id="wants too much memory",
        ),
        pytest.param(
            Data(header=header(), number=1 << 60, offset=0, total_bytes=0, chunk_bytes=1, checksum=7),
            id="wrong checksum of nothing",
        ),
    ],
)
def test_a_frame_that_breaks_the_rules_ends_the_connection_and_is_counted(listener: Listener, frame: Frame):
    with socket.create_connection(listener.address, timeout=PATIENCE_S) as sock:
        sock.sendall(encode(hello()))
        assert isinstance(decode(sock.recv(FRAME_BYTES, socket.MSG_WAITALL)), Hello)
        channel = listener.accept(deadline_s=PATIENCE_S)
        sock.sendall(encode(frame))
        while sock.recv(1 << 16):
            pass
        channel.close()
        assert channel.counters.malformed == 1


def test_a_dialer_says_why_it_was_refused(listener: Listener):
    host, port = listener.address
    with pytest.raises(RefusedError, match=rf"^b at 127.0.0.1:{port}: this is job j, not k$"):
        connect(host, port, identity=insecure("a", "k"), peer="b", channel="c", settings=QUICK, deadline_s=30)


def test_a_dialer_wants_the_node_that_it_asked_for(listener: Listener):
    host, port = listener.address
    with pytest.raises(RefusedError, match=r"this is b$"):
        connect(host, port, identity=insecure("a"), peer="x", channel="c", settings=QUICK, deadline_s=30)


def test_a_dialer_waits_for_a_listener_that_starts_later():
    with Listener(identity=insecure("b"), settings=QUICK) as first:
        host, port = first.address
    with pytest.raises(DeadlineError, match=r"^b at 127.0.0.1:\d+: no connection within 0.1 s: Connection refused$"):
        connect(host, port, identity=insecure("a"), peer="b", channel="c", settings=QUICK, deadline_s=0.1)
    with tcp_pair() as (a, b):
        a.send(header(), b"x", deadline_s=30)
        assert bytes(b.receive(deadline_s=30).data) == b"x"


def test_two_channels_of_one_node_are_kept_apart(listener: Listener):
    ends = {}
    for name in ("forward", "backward"):
        ends[name] = connect(
            *listener.address, identity=insecure("a"), peer="b", channel=name, settings=QUICK, deadline_s=5
        )
    others = [listener.accept(deadline_s=30) for _ in ends]
    for other in others:
        ends[other.name].send(header(), other.name.encode(), deadline_s=30)
        assert bytes(other.receive(deadline_s=30).data) == other.name.encode()
    closing = [threading.Thread(target=end.close) for end in (*ends.values(), *others)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
