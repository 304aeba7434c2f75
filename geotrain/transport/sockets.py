"""Small things about sockets that need saying once."""

import select
import socket
import struct
import sys
import time
from contextlib import suppress

from geotrain.errors import InputError
from geotrain.transport.settings import Settings

_INFO_BYTES = 232
"""Of the kernel's tcp_info, up to the peer's window; kernels before 5.4 tell less."""


def listen(host: str, port: int, settings: Settings) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _tune(sock, settings)
        sock.bind((host, port))
        sock.listen(128)
    except (OSError, InputError):
        sock.close()
        raise
    return sock


def dial(host: str, port: int, settings: Settings) -> socket.socket:
    """A connected socket, within the time for a handshake."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(settings.handshake_timeout_s)
        _tune(sock, settings)
        sock.connect(address)
    except (OSError, InputError):
        sock.close()
        raise
    return sock


def ready_for_frames(sock: socket.socket) -> None:
    """Non-blocking and without delay."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def limit_unsent(sock: socket.socket, size_bytes: int) -> None:
    """Take no more from the application than what is in flight and so much: the rest can go another way."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size_bytes)


def window_bytes(sock: socket.socket) -> int | None:
    """What TCP lets be in flight now: the smaller of the peer's window and the congestion window."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _INFO_BYTES:
        return None
    segment, segments, window = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in (16, 80, 228))
    return min(window, segments * segment)


def hang_up(sock: socket.socket, patience_s: float) -> None:
    """Close so that the last words arrive: a kernel that still gets bytes after a close throws them away."""
    # Past any TLS: what still comes is not read but thrown away.
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_WR)
        sock.setblocking(False)
        waste = bytearray(1 << 16)
        end_s = time.monotonic() + patience_s
        waiting = select.poll()
        waiting.register(sock, select.POLLIN)
        while (left_s := end_s - time.monotonic()) > 0 and waiting.poll(left_s * 1000):
            if not socket.socket.recv_into(sock, waste):
                break
    sock.close()


def throw_away(sock: socket.socket) -> None:
    """Have the kernel forget at the close what it has not delivered: it goes over another connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _tune(sock: socket.socket, settings: Settings) -> None:
    # Before connect or listen: the window's scale is agreed on in the TCP handshake.
    if settings.congestion is not None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, settings.congestion.encode())
        except OSError:
            raise InputError(f"congestion: the kernel does not offer {settings.congestion!r}") from None
    if settings.socket_buffer_bytes is not None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, settings.socket_buffer_bytes)
