"""A probe over loopback, and over an emulated WAN whose figures are known."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from geotrain.errors import RunError
from geotrain.testbed import Testbed
from geotrain.transport import Credentials, DeadlineError, Identity, RefusedError, connect
from geotrain.transport.memory import memory_pair
from geotrain.wan import client, talk
from geotrain.wan.client import Prober
from geotrain.wan.server import Server
from geotrain.wan.talk import JOB, MOST_BUFFER_BYTES, Order, hear, pour, say, settings
from tests.testbed.clusters import cluster
from tests.testbed.machine import require_namespaces


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


@pytest.mark.alone
def test_a_probe_over_loopback_measures_both_ways_and_says_how_far_it_is():
    said: list[str] = []
    with serving() as (server, _):
        found = probing(server.address, said.append).probe()
    assert 0 < found.rtt_s < 0.1
    for way in (found.there, found.back):
        assert [step.connections for step in way.steps] == [2**n for n in range(len(way.steps))]
        assert way.cap >= way.single > 1e6
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
        pytest.param({"what": 1}, id="field"),
    ],
)
def test_an_order_out_of_bounds_is_refused(word: dict[str, object]):
    with pytest.raises(RunError, match="asks for something that no probe asks for"):
        Order.checked(word)


def test_a_client_that_misbehaves_is_sent_away_and_the_next_is_served():
    with serving() as (server, said):
        with connect(
            *server.address,
            identity=insecure("evil"),
            peer="server",
            channel="probe",
            settings=settings(1),
            deadline_s=30,
        ) as channel:
            say(channel, {"do": "dance"})
            with pytest.raises(RunError):
                hear(channel, deadline_s=30)
        assert probing(server.address).probe().rtt_s > 0
    assert said[0].startswith("evil: the peer asks for something that no probe asks for")


@pytest.mark.alone
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
            probe = [*geotrain, "probe", host, "--insecure", "--json", "--seconds", "0.3"]
            with bed.popen("east", 0, probe, stdout=subprocess.PIPE, text=True) as asking:
                out, _ = asking.communicate(timeout=50)
            server.kill()
    found = json.loads(out)
    assert found["rtt_s"] == pytest.approx(0.02, rel=0.25)
    for way in ("there", "back"):
        assert found[way]["single_rate"] == pytest.approx(10e6, rel=0.2)
        assert found[way]["pair_cap"] == pytest.approx(40e6, rel=0.1)
        assert found[way]["tcp_window"] == pytest.approx(200e3, rel=0.25)
        assert found[way]["connections"] in (4, 8)
