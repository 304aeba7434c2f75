"""A probe over loopback, and over an emulated WAN whose figures are known."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from geotrain.errors import RunError
from geotrain.testbed import Testbed
from geotrain.transport import (
    ClosedError,
    Credentials,
    DeadlineError,
    Direction,
    Header,
    Identity,
    Message,
    PeerLostError,
    RefusedError,
    TcpChannel,
    connect,
)
from geotrain.transport.memory import memory_pair
from geotrain.wan import client, talk
from geotrain.wan.client import Prober
from geotrain.wan.figures import Probe
from geotrain.wan.server import Server
from geotrain.wan.talk import JOB, LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES, MOST_S, Order, hear, pour, say, settings
from tests.testbed.clusters import cluster
from tests.testbed.machine import require_namespaces
from tests.threads import together
from tests.transport.pairs import soon

pytestmark = pytest.mark.slow


def insecure(node: str) -> Identity:
    return Identity(job=JOB, node=node, insecure=True)


@contextmanager
def serving(identity: Identity | None = None) -> Iterator[tuple[Server, list[str]]]:
    said: list[str] = []
    server = Server(identity=identity or insecure("server"), host="127.0.0.1", port=0, tell=said.append)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server, said
    finally:
        server.close()
        thread.join(20)
        assert not thread.is_alive()


def probing(address: tuple[str, int], tell=lambda _: None, identity: Identity | None = None) -> Prober:
    return Prober(*address, identity=identity or insecure("client"), peer="server", seconds=0.05, tell=tell)


def test_a_probe_over_loopback_measures_both_ways_and_says_how_far_it_is():
    said: list[str] = []
    with serving() as (server, _):
        found = probing(server.address, said.append).probe()
    assert 0 < found.rtt_s < 5
    for way in (found.there, found.back):
        assert [step.connections for step in way.steps] == [2**n for n in range(len(way.steps))]
        assert way.cap >= way.single > 0
        assert found.window_bytes(way) == way.single * found.rtt_s
    assert said[0].startswith("round trip ")
    assert said[1].startswith("there, 1 connection: ")


def test_a_probe_with_keys_is_over_tls_and_others_are_refused(tmp_path: Path):
    keys = pytest.importorskip("geotrain.transport.keys", reason="cryptography is not installed")
    keys.make_keys(tmp_path, job="job", nodes=["server", "client"], days=1)
    mine, theirs = (
        Identity(job=JOB, node=node, credentials=Credentials(tmp_path / node)) for node in ("client", "server")
    )
    with serving(theirs) as (server, _):
        assert probing(server.address, identity=mine).probe().secure
        with pytest.raises(RefusedError, match="TLS"):
            probing(server.address).probe()


def test_no_server_is_an_error_within_the_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    with pytest.raises(DeadlineError, match=r"no connection within 0\.2 s: .*refused"):
        probing(address).probe()


def test_a_path_that_brings_nothing_is_an_error_but_not_before_a_machine_that_stalls_goes_on(
    monkeypatch: pytest.MonkeyPatch,
):
    order = Order(do="pour", seconds=0.05, skip_s=0.25)
    assert order.limit_s == 10.25
    assert Order(do="pour", seconds=2.0, skip_s=0.25).limit_s == 16.25
    monkeypatch.setattr(talk, "_LEAST_LIMIT_S", 0.1)
    near, _ = memory_pair("client", "server", delay_s=60)
    with pytest.raises(RunError, match=r"^server: too little arrived in 0\.65 s to measure a rate: give more seconds$"):
        pour(near, order)


@pytest.mark.parametrize(
    "word",
    [
        pytest.param({"do": "dance"}, id="do"),
        pytest.param({"do": "pour", "seconds": 1e9}, id="seconds"),
        pytest.param({"do": "pour", "buffer_bytes": MOST_BUFFER_BYTES + 1}, id="bytes"),
        pytest.param({"do": "pour", "seconds": "1"}, id="type"),
        pytest.param({"do": "echo", "trips": 10**9}, id="trips"),
        pytest.param({"do": "echo", "trips": "3"}, id="trips in words"),
        pytest.param({"do": "echo", "trips": 1.5}, id="a half trip"),
        pytest.param({"do": "pour", "buffer_bytes": LEAST_BUFFER_BYTES + 0.5}, id="half a byte"),
        pytest.param({"what": 1}, id="field"),
    ],
)
def test_an_order_out_of_bounds_is_refused(word: dict[str, object]):
    with pytest.raises(RunError, match="asks for something that no probe asks for"):
        Order.checked(word)


def dial(server: Server, name: str = "evil", channel: str = "probe", most: int = MOST_BUFFER_BYTES) -> TcpChannel:
    how = replace(settings(1), max_buffer_bytes=most)
    return connect(
        *server.address, identity=insecure(name), peer="server", channel=channel, settings=how, deadline_s=30
    )


def hang_up(channel: TcpChannel) -> None:
    channel.close(deadline_s=0.0)


def vanish(channel: TcpChannel) -> None:
    """End as a process that is killed: without a word."""
    channel._session.fail(ClosedError("vanished"))


def send(channel: TcpChannel, word: bytes) -> None:
    header = Header(job=JOB, step=0, pipeline=0, stage=0, microbatch=0, direction=Direction.FORWARD)
    channel.send(header, word, deadline_s=30)


class Crowd:
    """Clients of all kinds; each method is one of them."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.server = server
        self.stack = stack

    def stays_silent(self) -> None:
        self.stack.callback(hang_up, dial(self.server, channel=f"silent {id(object())}"))

    def hangs_up_at_once(self) -> None:
        hang_up(dial(self.server))

    def comes_twice_under_one_name(self) -> None:
        for _ in range(2):
            self.stack.callback(hang_up, dial(self.server, "twin"))

    def sends_bytes_that_are_no_greeting(self) -> None:
        with socket.create_connection(self.server.address) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)

    def stops_in_the_middle_of_its_greeting(self) -> None:
        sock = self.stack.enter_context(socket.create_connection(self.server.address))
        sock.sendall(b"geoT\2")

    def says_what_is_no_json(self) -> None:
        channel = dial(self.server)
        send(channel, b"[" * 200_000)
        self.stack.callback(hang_up, channel)

    def orders_nonsense(self) -> None:
        channel = dial(self.server)
        say(channel, {"do": "echo", "trips": "3"})
        hang_up(channel)

    def hangs_up_while_it_is_poured_for(self) -> None:
        channel = dial(self.server, channel="poured")
        say(channel, Order(do="pour", seconds=MOST_S))
        channel.receive(deadline_s=30)
        hang_up(channel)

    def hangs_up_before_it_pours(self) -> None:
        channel = dial(self.server, channel="drunk")
        say(channel, Order(do="drink", seconds=MOST_S))
        hang_up(channel)

    def cannot_take_what_it_orders(self) -> None:
        channel = dial(self.server, channel="small", most=1000)
        say(channel, Order(do="pour", seconds=MOST_S))
        self.stack.callback(hang_up, channel)

    def hears_more_than_it_said(self) -> None:
        channel = dial(self.server, channel="umlauts")
        say(channel, Order(do="echo", trips=1))
        send(channel, b'{"x": "%s"}' % ("\u00e4" * (1 << 20)).encode())
        self.stack.callback(hang_up, channel)


KINDS = sorted(name for name in vars(Crowd) if not name.startswith("_"))


def is_served(server: Server) -> bool:
    channel = dial(server, "good", "good")
    try:
        say(channel, Order(do="echo", trips=1))
        say(channel, {"still": "here"})
        return hear(channel, deadline_s=50) == {"still": "here"}
    finally:
        hang_up(channel)


@hypothesis_settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(KINDS), max_size=5))
@example(KINDS)
@example(KINDS[::-1])
def test_whatever_clients_do_in_any_order_the_next_is_served(kinds: list[str]):
    with serving() as (server, _), ExitStack() as stack:
        for kind in kinds:
            getattr(Crowd(server, stack), kind)()
        assert is_served(server)


def test_clients_that_vanish_in_the_middle_are_given_up_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("geotrain.wan.server.settings", lambda most: replace(settings(most), peer_timeout_s=3.0))
    with serving() as (server, said):
        for n, order in enumerate([Order(do="pour", seconds=MOST_S), Order(do="drink"), Order(do="echo", trips=9)] * 3):
            channel = dial(server, f"v{n}")
            say(channel, order)
            channel.flush(deadline_s=30)
            vanish(channel)
        assert is_served(server)
        assert soon(lambda: sum("lost" in sentence for sentence in said) == 9)


def test_two_probes_of_one_name_take_turns():
    with serving() as (server, _):
        found: list[Probe] = []
        together(*[lambda: found.append(probing(server.address).probe())] * 2)
    assert len(found) == 2


def test_who_only_pours_when_it_is_its_turn_is_not_measured_by_another():
    with serving() as (server, _):
        first, second = dial(server, "first"), dial(server, "second")
        say(first, Order(do="echo", trips=1))
        say(first, {})
        assert hear(first, deadline_s=30) == {}
        say(second, Order(do="drink"))
        with pytest.raises(DeadlineError):
            hear(second, deadline_s=0.3)
        hang_up(first)
        assert hear(second, deadline_s=50) == {}
        hang_up(second)


def test_a_client_with_slow_round_trips_does_not_hold_the_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("geotrain.wan.server._ECHO_S", 0.5)
    with serving() as (server, said):
        channel = dial(server)
        say(channel, Order(do="echo", trips=talk.MOST_TRIPS))
        with pytest.raises((ClosedError, PeerLostError)):
            for _ in range(talk.MOST_TRIPS):
                say(channel, {})
                hear(channel, deadline_s=30)
                threading.Event().wait(0.05)
        hang_up(channel)
        assert is_served(server)
        assert said[1].startswith("evil: ")


class Fountain:
    """A channel on which there is always data, and never a word."""

    peer = "evil"

    def receive(self, *, deadline_s: float) -> Message:
        self.received = getattr(self, "received", 0) + 1
        assert self.received < 10_000_000, "heard forever"
        data = Header(job=JOB, step=0, pipeline=0, stage=1, microbatch=0, direction=Direction.FORWARD)
        return Message(header=data, data=memoryview(b"x"))


def test_a_client_that_pours_without_end_is_not_heard_for_longer_than_was_agreed_on():
    with pytest.raises(DeadlineError, match=r"^evil: sent data and no word within 0.1 s$"):
        hear(Fountain(), deadline_s=0.1)  # type: ignore[arg-type]


def test_a_client_that_misbehaves_is_told_of_and_sent_away():
    with serving() as (server, said):
        channel = dial(server)
        say(channel, {"do": "dance"})
        with pytest.raises(RunError):
            hear(channel, deadline_s=30)
        hang_up(channel)
        assert said[0].startswith("evil: the peer asks for something that no probe asks for")


def test_the_figures_of_an_emulated_wan_are_found():
    require_namespaces()
    # A quarter of the cap for one connection, and rates that a busy machine still keeps up with.
    made = cluster(rtt="20 ms", pair_cap=40e6, tcp_window=200e3)
    geotrain = [sys.executable, "-m", "geotrain", "wan"]
    with Testbed(made, nodes_per_dc=1) as bed:
        host = bed.address("south", 0)
        serve = [*geotrain, "serve", "--insecure", "--host", host]
        with bed.popen("south", 0, serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None and server.stdout.readline() == f"listening at {host}:7470\n"
            probe = [*geotrain, "probe", host, "--insecure", "--json", "--seconds", "0.1"]
            with bed.popen("east", 0, probe, stdout=subprocess.PIPE, text=True) as asking:
                out, _ = asking.communicate(timeout=50)
            server.kill()
    found = json.loads(out)
    # A busy machine makes round trips longer and rates lower; how close they come is a benchmark.
    assert 0.99 * 0.02 <= found["rtt_s"] < 0.2
    for way in ("there", "back"):
        assert 0.1 * 10e6 < found[way]["single_rate"] < 1.5 * 10e6
        assert found[way]["single_rate"] <= found[way]["pair_cap"] < 1.5 * 40e6
        assert found[way]["tcp_window"] == pytest.approx(found[way]["single_rate"] * found["rtt_s"])
