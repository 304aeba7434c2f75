"""The TCP window that this kernel announces in a namespace, found by asking it.

Kernels differ: some keep to a route's window for good, others go back to what the receive buffer allows once they have
seen how much memory packets take. netem cannot limit windows, so the testbed has to know which kind this one is.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack, suppress

from geotrain.testbed.namespace import inside

_TCP_INFO, _SEND_WINDOW_AT = 11, 228
_ENOUGH_BYTES, _ENOUGH_S = 64 << 20, 0.5


def announced_window(sender: int, receiver: int, address: str) -> int:
    """The largest window that `receiver`, at `address`, grants a stream from `sender`; 0 if the kernel will not say."""
    with ExitStack() as stack:
        with inside(receiver):
            listener = stack.enter_context(socket.create_server((address, 0)))
        with inside(sender):
            source = stack.enter_context(socket.socket())
        listener.settimeout(5)
        source.settimeout(5)
        source.connect(listener.getsockname())
        target = stack.enter_context(listener.accept()[0])
        source.setblocking(False)
        target.setblocking(False)
        return _pump(source, target)


def _pump(source: socket.socket, target: socket.socket) -> int:
    data, buffer = bytes(1 << 18), bytearray(1 << 20)
    received, largest, until = 0, 0, time.monotonic() + _ENOUGH_S
    while received < _ENOUGH_BYTES and time.monotonic() < until:
        with suppress(BlockingIOError):
            source.send(data)
        with suppress(BlockingIOError):
            received += target.recv_into(buffer)
        facts = source.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
        if len(facts) >= _SEND_WINDOW_AT + 4:
            largest = max(largest, struct.unpack_from("=I", facts, _SEND_WINDOW_AT)[0])
    return largest
