"""One TCP or TLS connection of a channel: moves frames between a socket and the channel that owns it.

One thread does both directions on a non-blocking socket, because a TLS session must not be read and written at the same
time. Payloads go from and to the buffers they belong to, without a copy in Python; system calls, TLS and checksums of
large pieces run without the GIL. Over TLS a payload has no checksum of its own (it is 0): each TLS record is
authenticated, which says more. Knows nothing about buffers, order or resending.
"""

import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

from geotrain.transport.checksum import checksum
from geotrain.transport.errors import FrameError
from geotrain.transport.frame import (
    FRAME_BYTES,
    LEAST_FRAME_BYTES,
    Bye,
    Data,
    Frame,
    Status,
    decode,
    encode,
    frame_bytes,
)
from geotrain.transport.outbox import Piece
from geotrain.transport.settings import Settings
from geotrain.transport.sockets import hang_up, limit_unsent, ready_for_frames, throw_away, window_bytes

_FAREWELL_S = 1.0
_READS_PER_TURN = 16
_CHECKSUM_BYTES = 256 << 10
_RECORD_BYTES = 16 << 10
_LEAST_UNSENT_BYTES = 4 << 10
_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Owner(Protocol):
    """What a connection asks of its channel; all from the connection's thread."""

    def has_work(self, connection: int) -> bool:
        """Whether there is something to send."""

    def next_frame(self, connection: int) -> Status | Bye | Piece | None:
        """What to send next."""

    def status(self, connection: int) -> Status:
        """What to say when there is nothing to say."""

    def frame_arrived(self, connection: int, frame: Frame) -> memoryview | None:
        """A frame; returns where its payload goes."""

    def payload_arrived(self, connection: int) -> None:
        """The payload is complete."""

    def gives_up(self, connection: int) -> bool:
        """Whether to end after a silence that makes one doubt."""

    def clogged(self, connection: int) -> None:
        """There is something to send, but the socket has no room: somebody else may have it."""


class Connection:
    """Runs until the socket fails, the peer is silent, or one side has said farewell."""

    def __init__(
        self, sock: socket.socket, number: int, owner: Owner, settings: Settings, ping_interval_s: float
    ) -> None:
        self.number = number
        self.heard_at_s = self._spoke_at_s = time.monotonic()
        self._sock = sock
        self._owner = owner
        self._settings = settings
        self._ping_interval_s = ping_interval_s
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._receive_into = sock.recv_into if self._tls is None else self._receive_records
        self._waker, self._wakee = socket.socketpair()
        self._asleep = False
        self.clogged = False
        """Whether the socket had no room when it was last asked; if so, it wakes up when there is some."""
        self.window_bytes: int | None = None
        """What TCP let be in flight when it was last asked."""
        self._stopped = False
        self._out: list[memoryview] = []
        self._unsent_bytes = 0
        self._leaving = False
        self._drained = False
        """Whether all that had come was read; if more has come since, `_sleep` does not wait."""
        self._frame = memoryview(bytearray(FRAME_BYTES))
        self._frame_bytes = LEAST_FRAME_BYTES
        self._space = self._frame[:LEAST_FRAME_BYTES]
        self._data: Data | None = None
        self._payload = memoryview(b"")
        self._checked = 0
        self._crc = 0
        self._wakee.setblocking(False)
        self._waker.setblocking(False)
        ready_for_frames(sock)
        self._room = select.poll()
        self._room.register(sock, select.POLLOUT)
        self._events = select.poll()
        self._events.register(self._wakee, select.POLLIN)

    def run(self) -> None:
        """Move frames; OSError or FrameError if that ends badly."""
        try:
            while not self._stopped:
                wrote = self._write()
                read = self._read()
                if self._leaving and not self._out:
                    return hang_up(self._sock, _FAREWELL_S)
                if read is None:
                    return None
                if not wrote and self._drained:
                    self._sleep()
        finally:
            self._sock.close()

    def close(self) -> None:
        """After `run`, when nobody wakes it any more."""
        self._waker.close()
        self._wakee.close()

    def wake(self) -> None:
        """There is something to send; from any thread."""
        if self._asleep and not self.clogged:
            self._asleep = False
            with suppress(OSError):
                self._waker.send(b"\0")

    def stop(self) -> None:
        """End soon; from any thread."""
        self._stopped = True
        with suppress(OSError):
            self._waker.send(b"\0")

    def _sleep(self) -> None:
        """Wait until the socket or the owner has something, or it is time for a sign of life."""
        now = time.monotonic()
        silent_s = now - self.heard_at_s
        if silent_s > self._settings.silence_s or (
            silent_s > self._settings.doubt_s and self._owner.gives_up(self.number)
        ):
            throw_away(self._sock)
            raise TimeoutError(f"nothing heard for {silent_s:.1f} s")
        if not self._out and now - self._spoke_at_s >= self._ping_interval_s and self._has_room():
            self._out = [memoryview(encode(self._owner.status(self.number)))]
            self._spoke_at_s = now
        self._asleep = True
        if self._out or self._owner.has_work(self.number):
            if self._has_room():
                self._asleep = False
                return
            self._clog()
        self._events.register(self._sock, select.POLLIN | (select.POLLOUT if self.clogged else 0))
        self._events.poll(self._ping_interval_s * 500)
        self._asleep = False
        with suppress(BlockingIOError):
            self._wakee.recv(4096)

    def _has_room(self) -> bool:
        return bool(self._room.poll(0))

    def _clog(self) -> None:
        if not self.clogged:
            self.clogged = True
            self._owner.clogged(self.number)

    def _write(self) -> bool:
        """Send as much as there is room for; whether anything went."""
        if not self._out and not self._load():
            return False
        try:
            sent = self._tls.send(self._out[0]) if self._tls else self._sock.sendmsg(self._out)
        except _WAIT:
            self._clog()
            return False
        self._spoke_at_s = time.monotonic()
        while sent:
            first = self._out[0]
            if sent < len(first):
                self._out[0] = first[sent:]
                break
            sent -= len(first)
            del self._out[0]
        return True

    def _load(self) -> bool:
        """Get the next frame, but only if the socket has room: until then another connection may have it."""
        if self._leaving:
            return False
        if not self._has_room():
            self._clog()
            return False
        self.clogged = False
        self.window_bytes = window_bytes(self._sock)
        frame = self._owner.next_frame(self.number)
        if frame is None:
            return False
        if isinstance(frame, Piece):
            unsent_bytes = max(_LEAST_UNSENT_BYTES, min(self._settings.unsent_bytes, frame.chunk_bytes // 2))
            if unsent_bytes != self._unsent_bytes:
                limit_unsent(self._sock, unsent_bytes)
                self._unsent_bytes = unsent_bytes
            head = encode(
                Data(
                    header=frame.header,
                    number=frame.number,
                    offset=frame.offset,
                    total_bytes=frame.total_bytes,
                    chunk_bytes=frame.chunk_bytes,
                    checksum=0 if self._tls else checksum(frame.data),
                )
            )
            self._out = self._parts(head, frame.data)
        else:
            self._leaving = isinstance(frame, Bye)
            self._out = [memoryview(encode(frame))]
        return True

    def _parts(self, head: bytes, data: memoryview) -> list[memoryview]:
        """Together in one TLS record as far as they fit: each record costs a system call and a packet."""
        if self._tls is not None:
            beside = _RECORD_BYTES - len(head)
            head, data = head + data[:beside], data[beside:]
        return [memoryview(head), data] if data else [memoryview(head)]

    def _read(self) -> bool | None:
        """Take in what is there; whether that was anything. None when the peer has ended."""
        read = self._drained = False
        for _ in range(_READS_PER_TURN):
            try:
                count = self._receive_into(self._space)
            except _WAIT:
                self._drained = True
                break
            if not count:
                return None
            read = True
            self._space = self._space[count:]
            if self._data is not None and self._tls is None:
                self._check_part()
            if not self._space:
                self._complete()
        if read:
            self.heard_at_s = time.monotonic()
        return read

    def _receive_records(self, space: memoryview) -> int:
        """Like recv_into: TLS gives at most 16 KB at a time, so this loop is where the CPU's time goes."""
        assert self._tls is not None
        read = cast("Callable[[int, memoryview], int]", self._tls.read)
        size, got = len(space), 0
        try:
            while got < size:
                if not (count := read(_RECORD_BYTES, space[got:])):
                    break
                got += count
        except _WAIT:
            if not got:
                raise
        return got

    def _check_part(self) -> None:
        """Keep the checksum close behind the data, while that is in the CPU's cache."""
        got = len(self._payload) - len(self._space)
        if got - self._checked >= _CHECKSUM_BYTES or not self._space:
            self._crc = checksum(self._payload[self._checked : got], self._crc)
            self._checked = got

    def _complete(self) -> None:
        if self._data is None:
            if self._frame_bytes < (needed := frame_bytes(self._frame)):
                self._space = self._frame[self._frame_bytes : needed]
                self._frame_bytes = needed
                return
            frame = decode(self._frame[: self._frame_bytes])
            payload = self._owner.frame_arrived(self.number, frame)
            if isinstance(frame, Data) and payload is not None:
                self._data, self._payload, self._checked, self._crc = frame, payload, 0, 0
                self._space = payload
                if payload:
                    return
        if self._data is not None:
            if self._crc != self._data.checksum:
                raise FrameError("the payload's checksum is wrong")
            self._owner.payload_arrived(self.number)
            self._data = None
        self._payload = memoryview(b"")
        self._frame_bytes = LEAST_FRAME_BYTES
        self._space = self._frame[:LEAST_FRAME_BYTES]
