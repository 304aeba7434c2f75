"""Who is let in, and what happens to those who are not."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.transport import Credentials, DeadlineError, Identity, Listener, ListenerCounters, RefusedError, connect
from geotrain.transport.admission import Admission
from geotrain.transport.checksum import checksum
from geotrain.transport.frame import FRAME_BYTES, VERSION, Bye, Data, Frame, Hello, Status, decode, encode
from geotrain.transport.greeting import Greeting
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
        pytest.param(
            encode(hello(peer_timeout_ms=99)), "the greeting's limits make no sense", "malformed", id="impatient"
        ),
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
    with Listener(identity=insecure("b"), settings=short, max_half_open=1) as listener:
        with socket.create_connection(listener.address, timeout=PATIENCE_S) as silent:
            assert decode(silent.recv(FRAME_BYTES)) == Bye(sent=0, reason="no greeting within the time set")
        assert soon(lambda: listener.counters == ListenerCounters(timed_out=1))
        assert soon(lambda: isinstance(answer(listener, encode(hello())), Hello))


@pytest.fixture
def crowded() -> Iterator[tuple[Listener, list[socket.socket]]]:
    """A listener whose eight places are all taken by connections that say nothing, of ten addresses."""
    patient = replace(QUICK, handshake_timeout_s=PATIENCE_S)
    with ExitStack() as stack:
        listener = stack.enter_context(Listener(identity=insecure("b"), settings=patient, max_half_open=8))
        yield listener, [stack.enter_context(silent(listener, f"127.0.0.{2 + n // 4}")) for n in range(40)]


def silent(listener: Listener, host: str) -> socket.socket:
    return socket.create_connection(listener.address, timeout=PATIENCE_S, source_address=(host, 0))


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_one_address_holds_a_quarter_of_the_places_and_its_oldest_make_way():
    with (
        ExitStack() as stack,
        Listener(
            identity=insecure("b"), settings=replace(QUICK, handshake_timeout_s=60.0), max_half_open=8
        ) as listener,
    ):
        flood = [stack.enter_context(silent(listener, "127.0.0.2")) for _ in range(30)]
        assert soon(lambda: listener.counters.refused == 28)
        assert soon(lambda: [is_open(sock) for sock in flood] == [False] * 28 + [True] * 2)


def test_a_flood_keeps_neither_a_known_peer_out_nor_one_that_comes_for_the_first_time(crowded):
    listener, _ = crowded
    # 127.0.0.1 is new, then known; nobody of the flood gives up meanwhile.
    for n in range(3):
        assert isinstance(answer(listener, encode(hello(channel=f"c{n}", session=bytes([n] * 16)))), Hello)
    with connect(*listener.address, identity=insecure("a"), peer="b", channel="d", settings=QUICK, deadline_s=30) as a:
        a.send(header(), b"x", deadline_s=30)
    assert listener.counters.timed_out == 0


def test_known_peers_go_first(crowded):
    listener, _ = crowded
    assert isinstance(answer(listener, encode(hello())), Hello)
    with ExitStack() as stack:
        known = [stack.enter_context(silent(listener, "127.0.0.1")) for _ in range(8)]
        # Every place belongs to a known peer now: a stranger is turned away, a known one gets in.
        stranger = stack.enter_context(silent(listener, "127.0.0.99"))
        assert soon(lambda: not is_open(stranger))
        assert all(is_open(sock) for sock in known)
        assert isinstance(answer(listener, encode(hello(channel="d", session=b"d" * 16))), Hello)
        assert soon(lambda: [is_open(sock) for sock in known] == [False] + [True] * 7)


def test_a_flood_during_the_tls_handshake_is_dropped_too(tmp_path: Path):
    keys = pytest.importorskip("geotrain.transport.keys", reason="cryptography is not installed")
    keys.make_keys(tmp_path, job="j", nodes=["a", "b"], days=1)
    a, b = (Identity(job="j", node=node, credentials=Credentials(tmp_path / node)) for node in "ab")
    patient = replace(QUICK, handshake_timeout_s=60.0)
    client_hello = bytes.fromhex("16030100f5010000f10303")
    with ExitStack() as stack, Listener(identity=b, settings=patient, max_half_open=4) as listener:
        for n in range(20):
            stack.enter_context(silent(listener, f"127.0.0.{2 + n % 5}")).sendall(client_hello)
        channel = connect(*listener.address, identity=a, peer="b", channel="c", settings=QUICK, deadline_s=30)
        with channel, listener.accept(deadline_s=30) as other:
            channel.send(header(), b"x", deadline_s=30)
            assert bytes(other.receive(deadline_s=30).data) == b"x"
        assert soon(lambda: listener.counters.refused >= 17)


@pytest.mark.parametrize("first", ["127.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize("second", ["127.0.0.2", "2001:db8::2", "2001:db8:0:1::1"])
def test_addresses_of_one_ipv6_network_count_as_one(first: str, second: str):
    near, far = socket.socketpair()
    one, other = Greeting(near, 1.0), Greeting(far, 1.0)
    admission = Admission(4)
    assert admission.enter(one, first) and admission.enter(other, second)
    assert one.dropped == ((first, second) == ("2001:db8::1", "2001:db8::2"))
    near.close()
    far.close()


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


def session(number: int) -> bytes:
    return number.to_bytes(16, "little")


def test_only_so_many_channels_wait_to_be_accepted(listener: Listener):
    """Each may hold a window of memory, and nobody has asked for it yet."""
    for number in range(16):
        assert isinstance(answer(listener, encode(hello(channel=f"c{number}", session=session(number)))), Hello)
    refused = Bye(sent=0, reason="too many channels wait to be accepted")
    assert answer(listener, encode(hello(channel="one more", session=session(16)))) == refused
    listener.accept(deadline_s=PATIENCE_S).close(deadline_s=0)
    assert isinstance(answer(listener, encode(hello(channel="one more", session=session(16)))), Hello)


def test_who_is_not_expected_is_turned_away_and_named(listener: Listener):
    assert isinstance(answer(listener, encode(hello(node="early", session=session(1)))), Hello)
    listener.expect({("a", "c")})
    for node, name in (("a", "other"), ("x", "c")):
        refused = Bye(sent=0, reason="this node has no place here")
        assert answer(listener, encode(hello(node=node, channel=name, session=session(2)))) == refused
    with connect(*listener.address, identity=insecure("a"), peer="b", channel="c", settings=QUICK, deadline_s=30) as a:
        channel = listener.accept(deadline_s=PATIENCE_S)
        assert (channel.peer, channel.name) == ("a", "c")
        channel.close()
        a.close()
    assert listener.turned_away == ["a", "early", "x"]


def test_of_an_expected_channel_only_the_latest_waits(listener: Listener):
    """Else a node could take a window of memory again and again."""
    listener.expect({("a", "c")})
    for number in range(3):
        assert isinstance(answer(listener, encode(hello(session=session(number)))), Hello)
    listener.accept(deadline_s=PATIENCE_S).close(deadline_s=0)
    with pytest.raises(DeadlineError):
        listener.accept(deadline_s=0)
