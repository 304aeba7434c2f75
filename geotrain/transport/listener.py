"""The side of a channel that waits for connections: lets in who belongs to the job, and nobody else."""

import socket
import threading
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType
from typing import Self

from geotrain.errors import InputError
from geotrain.transport.admission import Admission
from geotrain.transport.channel import TcpChannel
from geotrain.transport.counters import ListenerCounters
from geotrain.transport.errors import (
    ClosedError,
    DeadlineError,
    PeerLostError,
    RefusedError,
    TransportError,
    VersionError,
)
from geotrain.transport.frame import Hello
from geotrain.transport.greeting import UNKNOWN_SESSION, Greeting, Identity
from geotrain.transport.inbox import Allocate, fresh_memory
from geotrain.transport.session import Session
from geotrain.transport.settings import Settings
from geotrain.transport.sockets import listen

_PATIENCE_S = 1.0
_PAUSE_S = 0.05
_BACKLOG = 16
"""Channels that wait to be accepted: each may hold a window of bytes. Of expected ones all may wait."""
_MOST_NAMED = 16
_NO_PLACE = "this node has no place here"


class Listener:
    """Accepts channels at an address; loopback unless told otherwise."""

    def __init__(
        self,
        *,
        identity: Identity,
        settings: Settings,
        host: str = "127.0.0.1",
        port: int = 0,
        max_half_open: int = 128,
        allocate: Allocate = fresh_memory,
        expected: Collection[tuple[str, str]] | None = None,
    ) -> None:
        """Listen; `expected` is as for `expect`, from the first connection on."""
        self._identity = identity
        self._settings = settings
        self._allocate = allocate
        self._context = identity.context(server=True)
        try:
            self._sock = listen(host, port, settings)
        except OSError as error:
            raise InputError(f"cannot listen at {host}:{port}: {error.strerror}") from None
        self._admission = Admission(max_half_open)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._counts = {"accepted": 0, "refused": 0, "malformed": 0, "timed_out": 0}
        self._sessions: dict[bytes, Session] = {}
        self._new: deque[tuple[Session, TcpChannel]] = deque()
        self._expected = None if expected is None else frozenset(expected)
        self._turned_away: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name=f"listen {identity.node}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._sock.getsockname()[:2]
        return host, port

    @property
    def counters(self) -> ListenerCounters:
        """What has happened so far."""
        with self._lock:
            return ListenerCounters(**self._counts)

    @property
    def turned_away(self) -> list[str]:
        """Nodes of the job that are not expected here and called all the same; the first few."""
        with self._lock:
            return sorted(self._turned_away)

    def expect(self, expected: Collection[tuple[str, str]]) -> None:
        """Let only these open a channel from now on, each a node and the channel's name; others are turned away.

        A node of the job that has no place here so takes neither memory nor a place in the queue.
        """
        with self._lock:
            self._expected = frozenset(expected)
            waiting, self._new = self._new, deque()
            for session, channel in waiting:
                if self._is_expected(session.peer, session.name):
                    self._new.append((session, channel))
                else:
                    self._note_stranger(session.peer)
                    session.fail(RefusedError(f"{session.peer}: {_NO_PLACE}"))

    def accept(self, *, deadline_s: float) -> TcpChannel:
        """The next channel that a peer has opened; `peer` and `name` tell which it is."""
        end_s = time.monotonic() + deadline_s
        with self._lock:
            while not self._new:
                if self._closing.is_set():
                    raise ClosedError("the listener was closed")
                if (left_s := end_s - time.monotonic()) <= 0:
                    raise DeadlineError(f"no peer opened a channel within {deadline_s:g} s")
                self._changed.wait(left_s)
            return self._new.popleft()[1]

    def close(self) -> None:
        """Let nobody in any more; channels that were accepted stay, but cannot be mended."""
        self._closing.set()
        # Wakes the thread that is waiting in accept.
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join()
        with self._lock:
            waiting, self._new = self._new, deque()
            self._changed.notify_all()
        for _, channel in waiting:
            channel.close(deadline_s=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                sock, (host, *_) = self._sock.accept()
            except OSError:
                # Closed, or out of file descriptors: no reason to spin.
                self._closing.wait(_PAUSE_S)
                continue
            greeting = Greeting(sock, self._settings.handshake_timeout_s)
            if not self._admission.enter(greeting, host):
                self._count("refused")
                sock.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(greeting, host), name="connection", daemon=True).start()
            except RuntimeError:
                # No more threads to be had: the next one may be luckier.
                self._admission.leave(greeting)
                sock.close()
                self._closing.wait(_PAUSE_S)

    def _serve(self, greeting: Greeting, host: str) -> None:
        """Greet, then serve the connection until it ends."""
        try:
            session = self._greet(greeting, host)
        except (TransportError, OSError) as error:
            self._turn_away(greeting, error)
            return
        finally:
            self._admission.leave(greeting)
        self._count("accepted")
        session.serve(greeting.sock)

    def _turn_away(self, greeting: Greeting, error: TransportError | OSError) -> None:
        """Count a greeting that has failed, say why and hang up."""
        match error:
            case _ if greeting.dropped:
                self._count("refused")
            case RefusedError() | VersionError():
                self._count("refused")
            case DeadlineError():
                self._count("timed_out")
            case _:
                self._count("malformed")
        if greeting.dropped or isinstance(error, OSError):
            greeting.sock.close()
        else:
            greeting.refuse(str(error), _PATIENCE_S)

    def _greet(self, greeting: Greeting, host: str) -> Session:
        greeting.secure(self._context, server=True)
        theirs = greeting.hear()
        if theirs.job != self._identity.job:
            raise RefusedError(f"this is job {self._identity.job}, not {theirs.job}")
        mine = Hello(
            job=self._identity.job,
            node=self._identity.node,
            channel=theirs.channel,
            session=theirs.session,
            window_bytes=self._settings.window_bytes,
            max_buffer_bytes=self._settings.max_buffer_bytes,
            max_chunk_bytes=self._settings.chunk_bytes,
            peer_timeout_ms=self._settings.peer_timeout_ms,
        )
        session = self._session(mine, theirs)
        self._admission.know(host)
        greeting.say(mine)
        return session

    def _session(self, mine: Hello, theirs: Hello) -> Session:
        """The session that a greeting belongs to, or a new one."""
        with self._lock:
            self._sessions = {key: session for key, session in self._sessions.items() if not session.over}
            known = self._sessions.get(theirs.session)
            if known is not None:
                if (known.peer, known.name) != (theirs.node, theirs.channel):
                    raise RefusedError("the session belongs to another node or channel")
                if len(known.connections) >= self._settings.max_connections:
                    raise RefusedError(f"has {len(known.connections)} connections already")
                return known
            if theirs.resumes:
                raise RefusedError(UNKNOWN_SESSION)
            if not self._is_expected(theirs.node, theirs.channel):
                self._note_stranger(theirs.node)
                raise RefusedError(_NO_PLACE)
            for session in self._sessions.values():
                if (session.peer, session.name) == (theirs.node, theirs.channel):
                    session.fail(PeerLostError(f"{theirs.node}: has started anew"))
            # What has failed while it waited is of no use any more, but holds memory.
            self._new = deque((one, channel) for one, channel in self._new if not self._is_void(one, theirs))
            if self._expected is None and len(self._new) >= _BACKLOG:
                raise RefusedError("too many channels wait to be accepted")
            session = Session(mine=mine, theirs=theirs, settings=self._settings, allocate=self._allocate)
            self._sessions[theirs.session] = session
            self._new.append((session, TcpChannel(session)))
            self._changed.notify()
            return session

    def _note_stranger(self, node: str) -> None:
        if len(self._turned_away) < _MOST_NAMED:
            self._turned_away.add(node)

    def _is_void(self, waiting: Session, newcomer: Hello) -> bool:
        """Whether a channel that waits has failed, or is an expected one whose place the newcomer takes."""
        same = (waiting.peer, waiting.name) == (newcomer.node, newcomer.channel)
        return (waiting.over and waiting.error is not None) or (self._expected is not None and same)

    def _is_expected(self, node: str, channel: str) -> bool:
        return self._expected is None or (node, channel) in self._expected

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
