"""The first words on a new connection: TLS, then one Hello from each side, blocking, with one deadline."""

import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass

from geotrain.errors import InputError
from geotrain.transport.errors import DeadlineError, FrameError, RefusedError, plain
from geotrain.transport.frame import LEAST_FRAME_BYTES, MAGIC, Bye, Hello, decode, encode, frame_bytes
from geotrain.transport.names import check_name
from geotrain.transport.sockets import hang_up
from geotrain.transport.tls import Credentials, certified_name

UNKNOWN_SESSION = "unknown session"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who this process is, and how it proves that."""

    job: str
    node: str
    credentials: Credentials | None = None
    insecure: bool = False
    """Neither encryption nor proof of who the peer is: for a private link only, and never by default."""

    def __post_init__(self) -> None:
        try:
            check_name(self.job, "job")
            check_name(self.node, "node")
        except ValueError as error:
            raise InputError(str(error)) from None
        if (self.credentials is None) != self.insecure:
            raise InputError("a channel needs either the keys of this node (`geotrain keys`) or insecure, not both")

    def context(self, *, server: bool) -> ssl.SSLContext | None:
        """For TLS; None where that is off."""
        return None if self.credentials is None else self.credentials.context(server=server)


class Greeting:
    """A connection that is being opened; every step within the one deadline."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self.sock = sock
        self.dropped = False
        """Whether the listener has given its place to another connection."""
        self._end_s = time.monotonic() + timeout_s

    def secure(self, context: ssl.SSLContext | None, *, server: bool) -> None:
        """Put TLS on the connection."""
        if context is None:
            return
        self._keep_time()
        try:
            if server and (first := self.sock.recv(len(MAGIC), socket.MSG_PEEK)) and MAGIC.startswith(first):
                raise RefusedError("this node wants TLS")
            # In two steps: a handshake that fails within wrap_socket would close before its alert has arrived.
            secured = self.sock = context.wrap_socket(self.sock, server_side=server, do_handshake_on_connect=False)
            if self.dropped:
                raise ConnectionResetError("dropped")
            secured.do_handshake()
        except TimeoutError:
            raise DeadlineError("no TLS handshake within the time set") from None
        except ssl.SSLError as error:
            raise _refusal(error) from None

    def say(self, frame: Hello | Bye) -> None:
        """Send a frame."""
        self._keep_time()
        self.sock.sendall(encode(frame))

    def hear(self) -> Hello:
        """The peer's greeting; RefusedError if it says farewell instead."""
        wire = bytearray()
        needed = LEAST_FRAME_BYTES
        while len(wire) < needed:
            self._keep_time()
            try:
                part = self.sock.recv(needed - len(wire))
            except TimeoutError:
                raise DeadlineError("no greeting within the time set") from None
            except ssl.SSLError as error:
                # In TLS 1.3 a client learns only now what the server thinks of its certificate.
                raise _refusal(error) from None
            if not part and wire[:4] != MAGIC[: len(wire)]:
                raise RefusedError("does not speak this protocol; is TLS on at one side only?")
            if not part:
                raise ConnectionResetError("hung up during the greeting")
            wire += part
            if len(wire) >= LEAST_FRAME_BYTES:
                needed = frame_bytes(wire)
        frame = decode(wire)
        if isinstance(frame, Bye):
            raise RefusedError(frame.reason or "refused without a reason")
        if not isinstance(frame, Hello):
            raise FrameError("speaks before it greets")
        if isinstance(self.sock, ssl.SSLSocket) and (name := certified_name(self.sock)) != frame.node:
            raise RefusedError(f"calls itself {frame.node}, but its certificate says {name}")
        return frame

    def refuse(self, reason: str, patience_s: float) -> None:
        """Say why and hang up, in extra time."""
        self._end_s = time.monotonic() + patience_s
        with suppress(OSError, DeadlineError):
            self.say(Bye(sent=0, reason=reason))
        hang_up(self.sock, patience_s)

    def drop(self) -> None:
        """End what another thread is waiting for here."""
        self.dropped = True
        # Past any TLS. While TLS is being put on, `secure` sees the flag.
        with suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def _keep_time(self) -> None:
        left = self._end_s - time.monotonic()
        if left <= 0:
            raise DeadlineError("no greeting within the time set")
        self.sock.settimeout(left)


def _refusal(error: ssl.SSLError) -> Exception:
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return ConnectionResetError("hung up during the TLS handshake")
    return RefusedError(f"TLS failed: {plain(error)}")
