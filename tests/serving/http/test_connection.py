"""What a client without a key can take: heads, time and connections are bounded, and others find room."""

import json
import re
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from geotrain.serving.http.connection import Connections, group_of
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.metrics import Metrics
from tests.serving import patient
from tests.serving.http.toy import HEAD, MODEL, Site, Toy, served, wait_until

GET = b"GET /health HTTP/1.1\r\nhost: x\r\n"
BODY = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 1}).encode()


def opened(site: Site) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", site.port))
    client.settimeout(50)
    return client


def read(client: socket.socket) -> bytes:
    """All that comes until the server hangs up, in whatever way."""
    found = b""
    try:
        while more := client.recv(1 << 16):
            found += more
    except ConnectionError:
        pass
    return found


def answered(client: socket.socket) -> bytes:
    """One answer, of a server that does not hang up."""
    found = b""
    while (end := found.find(b"\r\n\r\n")) < 0 or len(found) < end + 4 + _length(found[:end]):
        more = client.recv(1 << 16)
        assert more, found
        found += more
    return found


def _length(head: bytes) -> int:
    (length,) = re.findall(rb"content-length: (\d+)", head)
    return int(length)


def refusal_of(answer: bytes) -> tuple[int, dict[str, Any]]:
    """Status and error, in OpenAI's format."""
    head, _, body = answer.partition(b"\r\n\r\n")
    error: dict[str, Any] = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return int(head.split()[1]), error


def pushed(client: socket.socket, data: bytes, most_bytes: int) -> int:
    """Send it over and over until the server hangs up; how many bytes it took."""
    sent = 0
    try:
        while sent < most_bytes:
            client.sendall(data)
            sent += len(data)
            time.sleep(0)
    except ConnectionError:
        pass
    return sent


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(GET + b"x: " + b"a" * 70_000, id="one long header"),
        pytest.param(GET + b"x: aaaaaaaa\r\n" * 101 + b"\r\n", id="many headers"),
        pytest.param(GET + b"x: aaaaaaaa\r\n" * 7_000, id="many headers without an end"),
        pytest.param(b"GET /" + b"a" * 70_000, id="a long path"),
        pytest.param(b"\r\n" * 40_000, id="nothing but lines"),
    ],
)
def test_a_long_head_is_refused(head: bytes):
    with served(Toy()) as site, opened(site) as client:
        client.sendall(head)
        status, error = refusal_of(read(client))
        assert (status, error["code"]) == (431, "headers_too_large")
        assert patient.get(f"{site.url}/health").status_code == 200


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(GET + b"x: ", id="head"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ", id="trailer"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n1;", id="extension of a chunk"),
    ],
)
def test_no_more_than_the_limit_of_a_head_is_kept(begin: bytes, monkeypatch: pytest.MonkeyPatch):
    """What the parser was given; more may be thrown away until the client has read its error."""
    given = [0]
    real = HttpToolsProtocol.data_received

    def data_received(self: Any, data: bytes) -> None:
        given[0] += len(data)
        real(self, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", data_received)
    with served(Toy(), limits=Limits(max_head_bytes=16 << 10)) as site, opened(site) as client:
        client.sendall(begin)
        pushed(client, b"a" * 4096, 8 << 20)
        read(client)
    # In a body, the parser gets all that the socket had, at most 256 KiB at once.
    assert (16 << 10) <= given[0] <= (16 << 10) + (512 << 10 if b"chunked" in begin else 8192)


def test_a_head_within_the_limits_is_taken():
    head = GET + b"x: " + b"a" * 60_000 + b"\r\n" + b"y: b\r\n" * 90
    with served(Toy()) as site, opened(site) as client:
        client.sendall(head + b"connection: close\r\n\r\n")
        assert read(client).startswith(b"HTTP/1.1 200 ")


def test_requests_one_after_the_other_on_one_connection():
    """The limits are of each head, not of all."""
    with served(Toy(), limits=Limits(max_head_bytes=8192)) as site, opened(site) as client:
        for _ in range(20):
            client.sendall(GET + b"x: " + b"a" * 1000 + b"\r\n\r\n")
            assert answered(client).startswith(b"HTTP/1.1 200 ")
        head = HEAD + b"content-length: %d\r\n\r\n" % len(BODY)
        client.sendall((head + BODY) * 3 + GET + b"connection: close\r\n\r\n")
        assert read(client).count(b"HTTP/1.1 200 ") == 4


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        pytest.param(b"", None, id="silent"),
        pytest.param(b"GET /health HTT", 408, id="in its first line"),
        pytest.param(GET + b"x: a", 408, id="in its headers"),
        pytest.param(b"\r\n", 408, id="blank lines"),
    ],
)
def test_a_connection_that_sends_no_request_is_closed(begin: bytes, status: int | None):
    with served(Toy(), limits=Limits(head_s=0.2)) as site, opened(site) as client:
        client.sendall(begin)
        answer = read(client)
    assert (refusal_of(answer)[0] if answer else None) == status


def test_dripping_a_head_does_not_keep_a_connection():
    with served(Toy(), limits=Limits(head_s=0.5)) as site, opened(site) as client:
        client.sendall(GET + b"x: ")
        while not select.select([client], [], [], 0.02)[0]:
            client.sendall(b"a")
        assert refusal_of(read(client))[0] == 408


@pytest.mark.parametrize("after", [b"", b"\r\n", b"GET /hea"], ids=["silent", "blank lines", "half a request"])
def test_a_connection_that_was_used_and_is_not_any_more_is_closed(after: bytes):
    with served(Toy(), limits=Limits(idle_s=0.2, head_s=0.3)) as site, opened(site) as client:
        client.sendall(GET + b"\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        client.sendall(after)
        read(client)


def test_a_client_that_is_refused_cannot_go_on_sending_its_body():
    with served(Toy(), limits=Limits(max_body_bytes=1000)) as site, opened(site) as client:
        client.sendall(HEAD + b"content-length: 1000000000\r\n\r\n")
        answer = read(client)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_after_an_answer_that_did_not_wait_for_the_body_the_connection_serves_on():
    """The client was not told that it ends, and sends its next request over it."""
    with served(Toy(), limits=Limits(max_body_bytes=len(BODY))) as site, opened(site) as client:
        client.sendall(HEAD + b"content-length: %d\r\n\r\n" % (len(BODY) + 1))
        assert answered(client).startswith(b"HTTP/1.1 413 ")
        client.sendall(BODY + b" " + GET + b"\r\n")
        assert answered(client).startswith(b"HTTP/1.1 200 ")


def test_what_is_not_http_is_refused_in_the_same_format():
    with served(Toy()) as site, opened(site) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert refusal_of(read(client))[0] == 400


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"zz\r\n", 400, id="size of a chunk"),
        pytest.param(b"1\r\n{\r\nzz\r\n", 400, id="size of the second chunk"),
        pytest.param(b"1\r\n{\r\n0\r\nx y\r\n\r\n", 400, id="trailer"),
        pytest.param(b"1;" + b"a" * 70_000, 431, id="long extension"),
        pytest.param(b"1\r\n{\r\n0\r\nx: " + b"a" * 70_000, 431, id="long trailer"),
    ],
)
def test_a_body_that_is_not_http_is_answered(body: bytes, status: int):
    with served(Toy()) as site, opened(site) as client:
        client.sendall(CHUNKED + body)
        assert refusal_of(read(client))[0] == status
        (entry,) = site.entries(1)
        assert entry["status"] == 499
        assert site.engine.prompts == []


def test_extensions_and_trailers_are_read_over():
    with served(Toy()) as site, opened(site) as client:
        client.sendall(CHUNKED + b"%x;a=b\r\n%b\r\n0\r\nx: y\r\n\r\n" % (len(BODY), BODY))
        assert answered(client).startswith(b"HTTP/1.1 200 ")


def test_strangers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture):
    upgrade = GET + b"connection: upgrade, close\r\nupgrade: websocket\r\n\r\n"
    with served(Toy()) as site:
        for data in (b"\x16\x03\x01", upgrade) * 5:
            with opened(site) as client:
                client.sendall(data)
                read(client)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "refused connections since the last such line: 1 invalid_http; the last from 127.0.0.1"
    ]


def test_a_long_answer_is_not_ended_by_the_time_for_a_head():
    with served(Toy(delay_s=0.1), limits=Limits(head_s=0.2, idle_s=0.2)) as site:
        answer = patient.post(f"{site.url}/v1/completions", json={"model": MODEL, "prompt": "a", "max_tokens": 8})
    assert answer.status_code == 200


def test_the_excess_of_connections_is_refused_and_then_there_is_room_again():
    limits = Limits(max_connections=40, max_connections_per_address=3)
    with served(Toy(), limits=limits) as site:
        held = [opened(site) for _ in range(3)]
        for client in held:
            client.sendall(GET + b"\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        with opened(site) as client:
            status, error = refusal_of(read(client))
        assert (status, error["code"]) == (429, "too_many_connections_of_address")
        assert "127.0.0.1 has 3 connections" in error["message"]
        answer = metrics_over(held[0])
        assert b'geotrain:http_refusals_total{reason="too_many_connections_of_address"} 1.0' in answer
        for client in held:
            client.close()
        wait_until(lambda: _takes(site))


def metrics_over(client: socket.socket) -> bytes:
    """What /metrics says, asked over a connection that is open; it ends with it."""
    client.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    return read(client)


def _takes(site: Site) -> bool:
    with opened(site) as client:
        try:
            client.sendall(GET + b"connection: close\r\n\r\n")
        except ConnectionError:
            return False
        return read(client).startswith(b"HTTP/1.1 200 ")


def refused(enter: Callable[[], None]) -> int:
    with pytest.raises(Refusal) as raised:
        enter()
    return raised.value.status


def test_one_address_leaves_room_for_others():
    connections = Connections(Limits(max_connections=8), Metrics())
    for _ in range(2):
        connections.enter("192.0.2.1")
    for _ in range(100):
        assert refused(lambda: connections.enter("192.0.2.1")) in (429, 503)
        connections.leave("192.0.2.1")
    for number in (2, 2, 3, 3, 4, 4):
        connections.enter(f"192.0.2.{number}")
    assert refused(lambda: connections.enter("192.0.2.5")) == 503
    connections.leave("192.0.2.5")
    connections.leave("192.0.2.1")
    connections.enter("192.0.2.5")


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_are_counted_by_who_has_them(address: str, group: str):
    assert group_of(address) == group


def test_refused_connections_are_counted_each_and_logged_now_and_then(caplog: pytest.LogCaptureFixture):
    now_s, metrics = [0.0], Metrics()
    connections = Connections(Limits(), metrics, clock=lambda: now_s[0])
    for _ in range(100):
        connections.refused("192.0.2.1", "silent")
    connections.refused("192.0.2.2", "headers_too_large")
    now_s[0] += 10.0
    connections.refused("192.0.2.3", "silent")
    assert [record.getMessage() for record in caplog.records] == [
        "refused connections since the last such line: 1 silent; the last from 192.0.2.1",
        "refused connections since the last such line: 100 silent, 1 headers_too_large; the last from 192.0.2.3",
    ]
    assert b'geotrain:http_refusals_total{reason="silent"} 101.0' in metrics.text()
