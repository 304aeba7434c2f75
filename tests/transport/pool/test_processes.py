"""Nodes that are processes, over TCP on loopback; some of them are killed in the middle of a transfer."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from geotrain.transport import Settings
from geotrain.transport.keys import make_keys
from geotrain.transport.pool import Pooling
from tests.transport.pairs import soon
from tests.transport.pool.cells import JOB
from tests.transport.pool.node import count, on_this_machine, running, transfer

pytestmark = pytest.mark.slow


TCP = Settings(connections=2, peer_timeout_s=10.0, max_backoff_s=0.1)
POOLING = Pooling(chunk_bytes=256 << 10, patience_s=0.5, window_bytes=9_000_000, max_buffer_bytes=6_000_000)
HERE = [("127.0.0.1", on_this_machine)] * 3
SIZES = [4_000_000] * 12
"""More than the window holds: unfinished for as long as nobody receives."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys")
    make_keys(directory, job=JOB, nodes=[f"{side}{n}" for side in "nf" for n in range(3)], days=1)
    return directory


@pytest.mark.parametrize(
    ("connections", "secure"), [pytest.param("auto", False, id="auto"), pytest.param(2, True, id="tls")]
)
def test_all_pipelines_both_ways(connections: int | Literal["auto"], secure: bool, keys: Path):
    wan = replace(TCP, connections=connections)
    sizes = [4_000_000, 0, 5_000_001]
    with running(HERE, HERE, wan=wan, pooling=POOLING, keys=keys if secure else None) as (near, far):
        for senders, receivers in ((near, far), (far, near)):
            transfer(senders, receivers, sizes)
            # Compared byte by byte there: whole, in order, once.
            assert [len(node.answer()) for node in senders + receivers] == [len(sizes)] * 6
        for node in near + far:
            counts = count(node)
            assert counts["bytes_sent"] == counts["bytes_received"] == sum(sizes)
            assert counts["relayed_bytes"] > 0


@pytest.mark.parametrize("side", ["near", "far"])
def test_a_relay_killed_in_the_middle(side: str):
    with running(HERE, HERE, wan=TCP, pooling=POOLING) as (near, far):
        transfer([near[0]], [], SIZES)
        victim = (near if side == "near" else far)[1]
        assert soon(lambda: count(victim)["relayed_bytes"] > 0)
        victim.process.send_signal(signal.SIGKILL)
        far[0].tell(do="receive", sizes=SIZES)
        assert len(near[0].answer()) == len(far[0].answer()) == len(SIZES)
        sent, came = count(near[0]), count(far[0])
        assert (sent["buffers_sent"], came["buffers_received"]) == (len(SIZES), len(SIZES))
        assert sent["bytes_sent"] == came["bytes_received"] == sum(SIZES)
        assert sent["resends"] > 0
        survivor = (far if side == "near" else near)[1]
        survivor.tell(do="receive", sizes=[1])
        assert survivor.answer().startswith(f"PeerLostError: {victim.endpoint.node}: lost")


def test_the_counterpart_killed_in_the_middle_is_named():
    with running(HERE, HERE, wan=TCP, pooling=POOLING) as (near, far):
        transfer([near[0], near[2]], [far[2]], SIZES)
        assert soon(lambda: count(near[1])["relayed_bytes"] > 0)
        far[0].process.send_signal(signal.SIGKILL)
        assert near[0].answer().startswith("PeerLostError: f0: lost")
        assert len(near[2].answer()) == len(far[2].answer()) == len(SIZES)
