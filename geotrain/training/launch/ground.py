"""Where processes run: all on this machine's loopback, or each on its node of a testbed."""

import random
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from geotrain.errors import RunError
from geotrain.seating import Seat, Seating
from geotrain.testbed import Testbed

CONTROL_PORT = 29400
_LOOPBACK = "127.0.0.1"
_EPHEMERAL, _USUAL_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range"), 32768
_PORTS = 8000


class Ground(Protocol):
    """Nodes, their addresses, and how to start a command on one."""

    control: str
    """Where the leaders of the data centers meet."""

    def nodes(self, dc: str) -> Sequence[Sequence[Seat]]:
        """Who sits on each node."""
        ...

    def address(self, dc: str, node: int) -> str:
        """Where a process on that node can be reached."""
        ...

    def environment(self, dc: str) -> dict[str, str]:
        """What processes there need to be told."""
        ...

    def popen(self, dc: str, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a node; options are those of subprocess.Popen."""
        ...


class Loopback:
    """This machine: each data center is one node."""

    def __init__(self, seating: Seating) -> None:
        self._seating = seating
        self.control = f"{_LOOPBACK}:{_free_port()}"

    def nodes(self, dc: str) -> list[list[Seat]]:
        """One, with all of them."""
        return [self._seating.world(dc)]

    def address(self, dc: str, node: int) -> str:
        """The same for all."""
        return _LOOPBACK

    def environment(self, dc: str) -> dict[str, str]:
        """gloo would else look for an address of the machine's name, which need not have one."""
        return {"GLOO_SOCKET_IFNAME": next(name for _, name in socket.if_nameindex() if name.startswith("lo"))}

    def popen(self, dc: str, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """As anywhere."""
        return subprocess.Popen(command, **options)


class Namespaces:
    """A testbed: nodes as the plan has them, each with an address of its own."""

    def __init__(self, seating: Seating, bed: Testbed) -> None:
        self._seating, self._bed = seating, bed
        self.control = f"{bed.address(seating.dcs[0])}:{CONTROL_PORT}"

    def nodes(self, dc: str) -> list[list[Seat]]:
        """The plan's."""
        return self._seating.nodes(dc)

    def address(self, dc: str, node: int) -> str:
        """InputError if the testbed has no such node."""
        return self._bed.address(dc, node)

    def environment(self, dc: str) -> dict[str, str]:
        """gloo must be told the device: the machine's name leads to no address in here."""
        carried: tuple[str, ...] = ()
        with suppress(RunError):  # Not up: a dry run.
            carried = self._bed.session.record.carried
        # c10d warns of each connection whose address has no name, and none has.
        return {"GLOO_SOCKET_IFNAME": "wan" if dc in carried else "fabric", "TORCH_CPP_LOG_LEVEL": "ERROR"}

    def popen(self, dc: str, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Inside the node's namespace."""
        return self._bed.popen(dc, node, command, **options)


def needed_testbed(seating: Seating) -> Testbed:
    """The data centers of the plan, with as many nodes as it uses; to be brought up with `with`."""
    cluster = seating.plan.cluster
    taking_part = [cluster.datacenter(dc) for dc in seating.dcs]
    nodes = max(len(seating.nodes(dc)) for dc in seating.dcs)
    return Testbed(cluster.model_copy(update={"datacenters": taking_part}), nodes_per_dc=nodes)


def _free_port() -> int:
    """Not of those that the kernel gives to outgoing connections: one could take it before the listener does."""
    try:
        end = int(_EPHEMERAL.read_text().split()[0])
    except OSError:
        end = _USUAL_EPHEMERAL
    for port in random.sample(range(end - _PORTS, end), _PORTS):
        with socket.socket() as sock, suppress(OSError):
            sock.bind((_LOOPBACK, port))
            return port
    raise RunError(f"{_LOOPBACK} has no free port between {end - _PORTS} and {end}")
