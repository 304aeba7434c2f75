"""Plain torch.distributed between two processes, to compare with. torch is looked for when it is asked for."""

import fcntl
import importlib
import os
import socket
import struct
from contextlib import suppress
from datetime import timedelta
from typing import Any

from geotrain.errors import RunError

_GET_ADDRESS = 0x8915  # SIOCGIFADDR
MISSING = "torch is not installed"


class Gloo:
    """Rank 0 sends to rank 1, over the one TCP connection that gloo keeps for a pair."""

    def __init__(self, *, rank: int, host: str, address: str, port: int, deadline_s: float) -> None:
        try:
            self._torch: Any = importlib.import_module("torch")
            self._distributed: Any = importlib.import_module("torch.distributed")
        except ImportError as error:
            raise RunError(MISSING if error.name == "torch" else f"torch cannot be imported: {error}") from None
        # gloo would take the address that the host's name has, and a node of a testbed has the machine's name.
        if (interface := _interface_of(host)) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        self._other = 1 - rank
        self._place: Any = None
        where = f"tcp://{address}:{port}"
        wait = timedelta(seconds=deadline_s)
        self._distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=wait)

    def send(self, data: bytes) -> None:
        """Hand over; gloo returns when the data is on its way."""
        if self._place is None or self._place.numel() != len(data):
            self._place = self._torch.frombuffer(bytearray(data), dtype=self._torch.uint8)
        self._distributed.send(self._place, dst=self._other)

    def receive(self, size_bytes: int) -> None:
        """Returns when so many bytes have arrived."""
        if self._place is None or self._place.numel() != size_bytes:
            self._place = self._torch.zeros(size_bytes, dtype=self._torch.uint8)
        self._distributed.recv(self._place, src=self._other)

    def count(self) -> dict[str, Any]:
        """One connection, whatever happens."""
        return {"connections": 1}


def _interface_of(address: str) -> str | None:
    """The network interface that has this IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                found = fcntl.ioctl(sock, _GET_ADDRESS, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return None
