"""The forwarder with sockets for devices: no rights needed, and any bytes can be sent."""

import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.testbed import Blueprint, draw
from geotrain.testbed.forwarder import Forwarder
from geotrain.testbed.packet import VIRTIO
from tests.testbed.clusters import cluster
from tests.testbed.test_packet import ACK, tcp

PATIENCE_S = 20.0


class Done(Exception):
    """Ends the forwarder's loop."""


class Wire:
    """Two data centers with a node each; what is sent at one end comes out of the other."""

    def __init__(self, blueprint: Blueprint) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in blueprint.nodes]
        self.sockets = [end for pair in pairs for end in pair]
        for end in self.sockets:
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.ends = {node.dc: pair[0] for node, pair in zip(blueprint.nodes, pairs, strict=True)}
        self.devices = {node: pair[1].fileno() for node, pair in zip(blueprint.nodes, pairs, strict=True)}
        self.forwarder = Forwarder(blueprint, self.devices)

    def events(self) -> int:
        """Packets that have come through or have not, up to now."""
        fates = ("packets", "dropped", "lost")
        return self.forwarder.strays + sum(int(count[fate]) for count in self.forwarder.counters() for fate in fates)

    def run(self, events: int) -> None:
        """Forward until so many packets in all have met their fate."""
        reader, writer = os.pipe()
        os.write(writer, b"x")
        until = time.monotonic() + PATIENCE_S

        def check() -> None:
            assert time.monotonic() < until
            if self.events() >= events:
                raise Done

        self.forwarder.watch(reader, check)
        with suppress(Done):
            self.forwarder.run()
        self.forwarder.unwatch(reader)
        os.close(reader)
        os.close(writer)

    def received(self, dc: str) -> list[bytes]:
        packets = []
        with suppress(BlockingIOError):
            while True:
                packets.append(self.ends[dc].recv(1 << 17))
        return packets


@pytest.fixture
def wired() -> Iterator[Any]:
    wires: list[Wire] = []

    def make(loss: float = 0.0, **link: Any) -> Wire:
        blueprint = draw(cluster(**link), nodes_per_dc=1)
        ways = tuple(way.model_copy(update={"loss": loss}) for way in blueprint.ways)
        wires.append(Wire(blueprint.model_copy(update={"ways": ways})))
        return wires[-1]

    yield make
    for wire in wires:
        for end in wire.sockets:
            end.close()


def test_a_packet_comes_out_at_the_other_end_and_is_counted(wired):
    wire = wired(rtt="60 ms")
    wire.ends["east"].send(tcp(b"hello"))
    start = time.monotonic()
    wire.run(1)
    assert time.monotonic() - start > 0.029
    assert wire.received("south") == [tcp(b"hello")]
    assert wire.forwarder.counters()[0] == {
        "from": "east", "to": "south", "packets": 1, "bytes": 45, "dropped": 0, "lost": 0, "cut": False,
    }  # fmt: skip


def test_a_packet_for_nobody_or_from_somebody_else_is_a_stray(wired):
    wire = wired()
    elsewhere = tcp(b"hello").replace(bytes([10, 2, 0, 1]), bytes([10, 9, 0, 1]))
    wire.ends["east"].send(elsewhere)
    wire.ends["south"].send(tcp(b"a false source address"))
    wire.run(2)
    assert (wire.received("east"), wire.received("south"), wire.forwarder.strays) == ([], [], 2)


def test_windows_are_those_of_the_way_back(wired):
    wire = wired(tcp_window="2 kB")
    wire.ends["east"].send(tcp(b"data", window=5000))
    wire.run(1)
    assert wire.received("south") == [tcp(b"data", window=2000)]


def test_loss_takes_single_segments_out_of_large_pieces(wired):
    wire = wired(loss=0.1)
    sent = bytes(random.Random(0).randbytes(60000))
    parts = []
    for number in range(1, 31):
        wire.ends["east"].send(tcp(sent, segment=1000, flags=ACK))
        wire.run(number * 60)
        parts += wire.received("south")
    counts = wire.forwarder.counters()[0]
    assert counts["lost"] + counts["packets"] == 30 * 60
    assert counts["dropped"] == 0
    assert counts["lost"] == pytest.approx(180, rel=0.3)
    assert sum(len(part) - 50 for part in parts) == 1000 * counts["packets"]
    assert all((int.from_bytes(part[34:38], "big") - 1000) % 1000 == 0 for part in parts)


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(0, 1), st.integers(0, 70000))
def test_no_bytes_upset_it(bodies: list[bytes], gso: int, size: int):
    blueprint = draw(cluster(tcp_window="2 kB"), nodes_per_dc=1)
    ways = tuple(way.model_copy(update={"loss": 0.3}) for way in blueprint.ways)
    wire = Wire(blueprint.model_copy(update={"ways": ways}))
    addresses = bytes([10, 1, 0, 1, 10, 2, 0, 1])
    for body in bodies:
        wire.ends["east"].send(body)
        headed = VIRTIO.pack(1, gso, 40, size & 0xFFFF, 20, 16) + b"\x45" + bytes(8) + b"\x06\0\0" + addresses + body
        wire.ends["east"].send(headed)
    wire.run(2 * len(bodies))
    for end in wire.sockets:
        end.close()
