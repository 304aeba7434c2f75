"""Ports for those that must be told where to listen."""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_MANY = 8000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One that nobody listens at, and that was never given before."""
    for port in _left():
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("", port))
            return port
    raise AssertionError("there is no port left")


@cache
def _left() -> Iterator[int]:
    # Not of those that the kernel gives to outgoing connections: one could take it before the listener does. Each of
    # xdist's workers has its own, and two runs of the tests seldom begin alike.
    end = int(_EPHEMERAL.read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    mine = range(max(1024, end - _MANY) + worker, end, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    return iter(random.Random(os.getpid()).sample(mine, len(mine)))
