"""Nodes that are processes, over TCP on loopback; some of them are killed in the middle of a transfer."""

import signal
from dataclasses import replace

import pytest

from geotrain.transport import Settings
from geotrain.transport.pool import Pooling
from tests.transport.pairs import soon
from tests.transport.pool.node import Node, on_this_machine, running

TCP = Settings(connections=2, peer_timeout_s=1.0, handshake_timeout_s=2.0, max_backoff_s=0.1)
POOLING = Pooling(chunk_bytes=256 << 10, patience_s=0.5)
HERE = [("127.0.0.1", on_this_machine)] * 3
SIZES = [4_000_000] * 12


def begin(senders: list[Node], receivers: list[Node]) -> None:
    for sender in senders:
        sender.tell(do="make", sizes=SIZES)
    for sender in senders:
        sender.answer()
    for receiver in receivers:
        receiver.tell(do="receive", sizes=SIZES)
    for sender in senders:
        sender.tell(do="send")


def count(node: Node) -> dict[str, int]:
    node.tell(do="count")
    answer: dict[str, int] = node.answer()
    return answer


@pytest.mark.parametrize("side", ["near", "far"])
def test_a_relay_killed_in_the_middle(side: str):
    with running(HERE, HERE, wan=TCP, pooling=POOLING) as (near, far):
        begin([near[0]], [far[0]])
        victim = (near if side == "near" else far)[1]
        assert soon(lambda: count(victim)["relayed_bytes"] > 0)
        victim.process.send_signal(signal.SIGKILL)
        # Compared byte by byte there: whole, in order, once.
        assert len(near[0].answer()) == len(far[0].answer()) == len(SIZES)
        sent, came = count(near[0]), count(far[0])
        assert (sent["buffers_sent"], came["buffers_received"]) == (len(SIZES), len(SIZES))
        assert sent["bytes_sent"] == came["bytes_received"] == sum(SIZES)
        assert sent["resends"] > 0
        survivor = (far if side == "near" else near)[1]
        survivor.tell(do="receive", sizes=[1])
        assert survivor.answer().startswith(f"PeerLostError: {victim.seat.node}: lost")


def test_the_counterpart_killed_in_the_middle_is_named():
    pooling = replace(POOLING, window_bytes=9_000_000, max_buffer_bytes=4_000_000)
    with running(HERE, HERE, wan=TCP, pooling=pooling) as (near, far):
        begin([near[0], near[2]], [far[0], far[2]])
        assert soon(lambda: count(near[1])["relayed_bytes"] > 0)
        far[0].process.send_signal(signal.SIGKILL)
        assert near[0].answer().startswith("PeerLostError: f0: lost")
        assert len(near[2].answer()) == len(far[2].answer()) == len(SIZES)
