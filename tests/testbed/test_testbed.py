"""The testbed does what the cluster file says: real namespaces, real TCP."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from geotrain.errors import InputError, RunError
from geotrain.testbed import Testbed
from geotrain.testbed.control import ask
from geotrain.testbed.record import started
from tests.testbed.clusters import cluster
from tests.testbed.traffic import Stream, round_trip_s

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("namespaces")]

# Rates that take little of the CPU. A busy machine makes them lower, never higher: how close they come to the file's is
# a benchmark.
WINDOW = 200e3
CAP = 10e6
EAST, SOUTH = ("east", 0), ("south", 0)


@pytest.fixture(scope="module")
def bed(namespaces):
    """40 ms, 80 Mbit/s per pair, a window that fills half of it."""
    link: dict[str, Any] = {"rtt": "40 ms", "pair_cap": CAP, "tcp_window": WINDOW}
    with Testbed(cluster(fabric={"rate": "2 Gbit/s"}, **link), nodes_per_dc=2) as bed:
        yield bed


@pytest.mark.parametrize("rtt_s", [0.01, 0.02, 0.04])
def test_the_round_trip_and_the_rate_of_one_connection_are_those_of_the_file(rtt_s: float):
    with Testbed(cluster(rtt=rtt_s, pair_cap="5 Gbit/s", tcp_window=WINDOW), nodes_per_dc=1) as bed:
        assert 0.99 * rtt_s <= round_trip_s(bed, EAST, SOUTH) <= 10 * rtt_s
        assert 0.1 < Stream(bed, EAST, SOUTH, skip_s=0).rate() / (WINDOW / rtt_s) < 1.15


def test_many_connections_fill_the_pair_cap_and_no_more(bed: Testbed):
    assert 0.55 < Stream(bed, EAST, SOUTH, connections=4, seconds=3, skip_s=0).rate() / CAP < 1.1


def test_directions_and_pairs_are_independent(bed: Testbed):
    pairs = [(EAST, ("south", 0)), (("south", 0), EAST), (("east", 1), ("south", 1))]
    streams = [Stream(bed, source, target, connections=4, seconds=3, skip_s=0) for source, target in pairs]
    # If two of them shared a cap, neither would come above half of it.
    assert all(0.55 < stream.rate() / CAP < 1.1 for stream in streams)


def test_inside_a_data_center_the_fabric_limits_and_there_is_no_wan(bed: Testbed):
    assert round_trip_s(bed, EAST, ("east", 1)) < 0.04
    before = _carried_bytes(bed)
    assert 1.1 * CAP < Stream(bed, EAST, ("east", 1), connections=2, seconds=1, skip_s=0).rate() < 1.15 * 250e6
    # Connections of earlier tests may still say goodbye.
    assert _carried_bytes(bed) - before < 10_000


def test_pairs_share_the_capacity_of_their_link_fairly():
    link: dict[str, Any] = {"rtt": "10 ms", "pair_cap": 4e6, "capacity": 5e6, "tcp_window": "400 kB"}
    with Testbed(cluster(**link), nodes_per_dc=2) as bed:
        greedy = Stream(bed, EAST, SOUTH, connections=6, seconds=2.5, skip_s=1)
        modest = Stream(bed, ("east", 1), ("south", 1), seconds=2.5, skip_s=1)
        # Shared by connections, the modest one would have a seventh: 0.29.
        assert modest.rate() / 2.5e6 > 0.6
        assert greedy.rate() / 4e6 < 1.1


def test_a_program_cannot_ask_for_a_larger_window(bed: Testbed):
    script = (
        "import socket, time; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20);"
        f"s.bind(('{bed.address(*SOUTH)}', 5002)); s.listen(); print(flush=True); c, _ = s.accept();"
        "start = time.monotonic(); n = 0\n"
        "while time.monotonic() < start + 1.2: n += len(c.recv(1 << 20)) * (time.monotonic() > start + 0.4)\n"
        "print(n / 0.8)"
    )
    with bed.popen(*SOUTH, [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None and sink.stdout.readline()
        send = (
            f"import socket; s = socket.create_connection(('{bed.address(*SOUTH)}', 5002))\n"
            "try:\n while True: s.send(bytes(1 << 18))\nexcept OSError: pass"
        )
        with bed.popen(*EAST, [sys.executable, "-c", send]):
            assert 0.1 < float(sink.stdout.readline()) / (WINDOW / 0.04) < 1.5


def test_random_loss_is_per_packet_and_tcp_survives_it():
    bed = Testbed(cluster(rtt="5 ms", tcp_window="2 MB"), nodes_per_dc=1, seed=7)
    ways = tuple(way.model_copy(update={"loss": 0.01}) for way in bed.blueprint.ways)
    bed.blueprint = bed.blueprint.model_copy(update={"ways": ways})
    with bed:
        assert Stream(bed, EAST, SOUTH, connections=8).rate() > 1e6
        there = bed.counters()["ways"][0]
        assert there["lost"] / (there["lost"] + there["packets"]) == pytest.approx(0.01, rel=0.5)


def test_a_cut_lets_nothing_through_until_it_is_healed(bed: Testbed):
    connect = f"import socket; socket.create_connection(('{bed.address(*SOUTH)}', 1), timeout=0.5)"
    bed.cut("east", "south")
    with bed.popen(*EAST, [sys.executable, "-c", connect], stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None and "timed out" in client.stderr.read()
    bed.heal("east", "south")
    with bed.popen(*EAST, [sys.executable, "-c", connect], stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None and "refused" in client.stderr.read()


def test_an_order_that_makes_no_sense_is_refused(bed: Testbed):
    with pytest.raises(InputError, match="the testbed has no WAN link from 'east' to 'west'"):
        bed.cut("east", "west")
    with pytest.raises(RunError, match="the testbed refuses: 'do'"):
        ask(bed.session.files.socket, {"no": "sense"})
    assert bed.counters()["strays"] >= 0


def test_nodes_reach_the_nodes_and_nothing_else(bed: Testbed):
    script = """
import socket
for address in ("192.0.2.1", "8.8.8.8", "172.17.0.1", "10.200.0.1"):
    try:
        socket.create_connection((address, 80), timeout=1)
        print("reached", address)
    except OSError as error:
        print(error.errno)
print(sorted(name for _, name in socket.if_nameindex()))
"""
    with bed.popen(*EAST, [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as client:
        assert client.communicate(timeout=20)[0] == "101\n" * 4 + "['fabric', 'lo', 'wan']\n"


def test_a_slow_fabric_is_carried_by_the_wan_process():
    with Testbed(cluster("east", fabric={"rate": "800 Mbit/s", "latency": "3 ms"}), nodes_per_dc=2) as bed:
        assert 0.0059 <= round_trip_s(bed, EAST, ("east", 1)) <= 0.06
        assert 0.1 < Stream(bed, EAST, ("east", 1), seconds=1, skip_s=0).rate() / 100e6 < 1.15


def test_nothing_is_left_after_it():
    with Testbed(cluster(rtt="1 ms"), nodes_per_dc=1) as bed:
        record, state = bed.session.record, bed.session.files.state
        guest = bed.popen(*EAST, ["sleep", "60"])
        ignore = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
        stubborn = bed.popen(*SOUTH, ignore, stdout=subprocess.PIPE, text=True)
        assert stubborn.stdout is not None and stubborn.stdout.readline() == "ready\n"
    assert guest.wait(30) == -signal.SIGTERM
    assert stubborn.wait(30) == -signal.SIGKILL
    stubborn.stdout.close()
    assert started(record.keeper) is None
    assert not state.exists()
    assert not users_of({place.inode for place in record.places})


def test_a_killed_keeper_is_noticed_and_leaves_nothing_that_cannot_be_removed():
    devices = os.listdir("/sys/class/net")
    with Testbed(cluster(rtt="1 ms"), nodes_per_dc=1) as bed:
        record = bed.session.record
        speaking = ["sh", "-c", "echo ready; exec sleep 60"]
        guest = bed.popen(*EAST, speaking, stdout=subprocess.PIPE, text=True)
        assert guest.stdout is not None and guest.stdout.readline() == "ready\n"
        os.kill(record.keeper, signal.SIGKILL)
        while record.alive:
            time.sleep(0.01)
        with pytest.raises(RunError, match=r"'testbed' is dead, its process \d+ has ended: `geotrain testbed down"):
            bed.popen(*EAST, ["true"])
    assert guest.wait(30) == -signal.SIGTERM
    guest.stdout.close()
    assert not users_of({place.inode for place in record.places})
    assert os.listdir("/sys/class/net") == devices


def test_it_goes_with_the_program_that_made_it():
    script = (
        "import os, time; from geotrain.testbed import Testbed; from tests.testbed.clusters import cluster\n"
        "with Testbed(cluster(), nodes_per_dc=1) as bed:\n"
        " guest = bed.popen('east', 0, ['sleep', '60'], stdout=-3)\n"
        " print(bed.session.files.state, bed.session.record.keeper, guest.pid, flush=True)\n"
        " time.sleep(0.3); os._exit(9)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30).stdout
    state, keeper, guest = out.split()
    until = time.monotonic() + 30
    while started(int(keeper)) is not None:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert started(int(guest)) is None
    assert not os.path.exists(state)


@pytest.mark.parametrize(
    ("dc", "node", "command", "sentence"),
    [
        pytest.param("west", 0, ["true"], "the testbed has no data center 'west', only east, south", id="dc"),
        pytest.param("east", 2, ["true"], "east has no node 2 in this testbed, only node 0 to 1; ", id="node"),
        pytest.param("east", 0, ["no-such"], "the command 'no-such' does not exist here", id="command"),
        pytest.param("east", 0, [], "a command is missing after `--`", id="none"),
    ],
)
def test_what_cannot_be_run_is_refused(bed: Testbed, dc: str, node: int, command: list[str], sentence: str):
    with pytest.raises(InputError) as error:
        bed.popen(dc, node, command)
    assert str(error.value).startswith(sentence)


def _carried_bytes(bed: Testbed) -> int:
    return sum(way["bytes"] for way in bed.counters()["ways"])


def users_of(inodes: set[int]) -> list[str]:
    """Processes in those namespaces."""
    users = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{process}/ns/net").st_ino in inodes:
                users.append(process)
        except OSError:
            continue
    return users
