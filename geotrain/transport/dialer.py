"""The side of a channel that opens the connections, and opens them again when they die."""

import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from geotrain.transport.channel import TcpChannel
from geotrain.transport.errors import DeadlineError, FrameError, PeerLostError, RefusedError, TransportError, plain
from geotrain.transport.frame import SESSION_BYTES, Hello
from geotrain.transport.greeting import UNKNOWN_SESSION, Greeting, Identity
from geotrain.transport.inbox import Allocate, fresh_memory
from geotrain.transport.session import Session
from geotrain.transport.settings import Settings
from geotrain.transport.sockets import dial


def connect(
    host: str,
    port: int,
    *,
    identity: Identity,
    peer: str,
    channel: str,
    settings: Settings,
    deadline_s: float,
    allocate: Allocate = fresh_memory,
) -> TcpChannel:
    """A channel to the node `peer` that listens there; tries until the deadline, for the peer may start later.

    RefusedError if the two do not belong together, DeadlineError that says what went wrong last.
    """
    return _Dialer(host, port, identity, peer, channel, settings).open(deadline_s, allocate)


class _Dialer:
    def __init__(self, host: str, port: int, identity: Identity, peer: str, channel: str, settings: Settings) -> None:
        self._address = host, port
        self._context = identity.context(server=False)
        self._peer = peer
        self._settings = settings
        self._hello = Hello(
            job=identity.job,
            node=identity.node,
            channel=channel,
            session=secrets.token_bytes(SESSION_BYTES),
            window_bytes=settings.window_bytes,
            max_buffer_bytes=settings.max_buffer_bytes,
            max_chunk_bytes=settings.chunk_bytes,
            peer_timeout_ms=settings.peer_timeout_ms,
        )
        self._slots = 0

    def open(self, deadline_s: float, allocate: Allocate) -> TcpChannel:
        end_s = time.monotonic() + deadline_s
        pauses = _Pauses(self._settings.max_backoff_s)
        where = f"{self._peer} at {self._address[0]}:{self._address[1]}"
        while True:
            try:
                sock, theirs = self._dial(self._hello)
                break
            except (RefusedError, FrameError) as error:
                raise RefusedError(f"{where}: {error}") from None
            except (OSError, DeadlineError) as error:
                trouble = plain(error)
            if (left_s := end_s - time.monotonic()) <= 0:
                raise DeadlineError(f"{where}: no connection within {deadline_s:g} s: {trouble}")
            threading.Event().wait(min(left_s, pauses.next_s()))
        session = Session(mine=self._hello, theirs=theirs, settings=self._settings, allocate=allocate)
        session.on_target = lambda target: self._fill(session, target)
        self._slots = 1
        _start(f"to {self._peer} 0", lambda: self._keep(session, sock))
        return TcpChannel(session)

    def _dial(self, hello: Hello) -> tuple[socket.socket, Hello]:
        greeting = Greeting(dial(*self._address, self._settings), self._settings.handshake_timeout_s)
        try:
            greeting.secure(self._context, server=False)
            greeting.say(hello)
            theirs = greeting.hear()
            if theirs.node != self._peer:
                raise RefusedError(f"this is {theirs.node}")
            if (theirs.job, theirs.channel, theirs.session) != (hello.job, hello.channel, hello.session):
                raise RefusedError(f"speaks of job {theirs.job}, channel {theirs.channel}")
        except (TransportError, OSError):
            greeting.sock.close()
            raise
        return greeting.sock, theirs

    def _fill(self, session: Session, target: int) -> None:
        """One thread per connection that there should be."""
        while self._slots < target:
            index, self._slots = self._slots, self._slots + 1
            _start(f"to {self._peer} {index}", lambda: self._keep(session, None))

    def _keep(self, session: Session, sock: socket.socket | None) -> None:
        """Keep one connection open for as long as the session has use for it."""
        pauses = _Pauses(self._settings.max_backoff_s)
        again = replace(self._hello, resumes=True)
        while not session.over:
            try:
                if sock is None:
                    sock, _ = self._dial(again)
                session.serve(sock)
                sock = None
                pauses.reset()
            except (OSError, TransportError) as error:
                if UNKNOWN_SESSION in str(error):
                    session.fail(PeerLostError(f"{self._peer}: has closed the channel or started anew"))
                session.note(plain(error))
            session.pause(pauses.next_s())


class _Pauses:
    """Times between attempts: short at first, then doubling, with some chance so that nodes do not march in step."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self.reset()

    def reset(self) -> None:
        self._pause_s = self._most_s / 20

    def next_s(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(self._most_s, self._pause_s * 2)
        return pause_s * (0.5 + secrets.randbelow(1000) / 2000)


def _start(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()
