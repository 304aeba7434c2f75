"""Frames on the wire: what they are, to bytes and back. Pure, and of two sizes, so that parsing allocates nothing.

    magic 4 | version 1 | kind 1 | 0 2 | body 168, padded with zeros | CRC-32 of all that 4

A Status, of which there are many, has a body of 20. A Data frame is followed by its payload, whose length and CRC it
states. All other frames stand alone. There is one way to write each frame: whatever parses, encodes to the same bytes
again.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from geotrain.transport.checksum import Buffer, checksum
from geotrain.transport.errors import FrameError, VersionError
from geotrain.transport.header import HEADER_BYTES, Header
from geotrain.transport.names import NAME_BYTES, check_name, pack_name, unpack_name

VERSION = 2
SESSION_BYTES = 16
LEAST_CHUNK_BYTES = 512
"""Nobody may ask for buffers to be cut finer, for each piece costs some memory and time."""
LEAST_PEER_TIMEOUT_MS = 100
"""Nobody may ask for signs of life so often that a peer has time for nothing else: eight are due within it."""
MAGIC = b"geoT"
_REASON_BYTES = 120

_HELLO = struct.Struct(f"<{NAME_BYTES}s{NAME_BYTES}s{NAME_BYTES}s{SESSION_BYTES}sQQIIB")
_DATA = struct.Struct(f"<QQQII{HEADER_BYTES}s")
_STATUS = struct.Struct("<QQI")
_BYE = struct.Struct(f"<Q{_REASON_BYTES}s")
_SHORT = struct.Struct(f"<4sBBH{_STATUS.size}sI")
_LONG = struct.Struct("<4sBBH168sI")
LEAST_FRAME_BYTES, FRAME_BYTES = _SHORT.size, _LONG.size
_STATUS_KIND = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """First frame of each side: who speaks, for which channel, and what it takes at most."""

    job: str
    node: str
    channel: str
    session: bytes
    window_bytes: int
    max_buffer_bytes: int
    max_chunk_bytes: int
    peer_timeout_ms: int
    """How long it waits for a sign of life."""
    resumes: bool = False

    def __post_init__(self) -> None:
        for name in ("job", "node", "channel"):
            check_name(getattr(self, name), name)
        if len(self.session) != SESSION_BYTES:
            raise ValueError(f"session must be {SESSION_BYTES} bytes, not {len(self.session)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """A piece of a buffer. All pieces of a buffer but the last have `chunk_bytes`."""

    header: Header
    number: int
    offset: int
    total_bytes: int
    chunk_bytes: int
    checksum: int

    @property
    def length(self) -> int:
        """Bytes that follow the frame."""
        return min(self.chunk_bytes, self.total_bytes - self.offset)


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """How far the speaker is: cumulative, so that the latest one says all. Also the sign of life."""

    acknowledged: int
    """Data frames that have arrived over this connection."""
    taken: int
    """Buffers that the application has received over the channel."""
    connections: int
    """Connections that the speaker would like to have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bye:
    """The speaker closes the channel, or refuses to open it."""

    sent: int
    """Buffers that it sent in all."""
    reason: str = ""


Frame: TypeAlias = Hello | Data | Status | Bye


def frame_bytes(start: Buffer) -> int:
    """The size of the frame that begins with these bytes, at least LEAST_FRAME_BYTES of them."""
    return LEAST_FRAME_BYTES if start[5] == _STATUS_KIND else FRAME_BYTES


def encode(frame: Frame) -> bytes:
    """The frame's bytes; its numbers have been checked by whoever made it."""
    outer = _LONG
    match frame:
        case Hello():
            kind, body = 1, _pack_hello(frame)
        case Data():
            place = (frame.number, frame.offset, frame.total_bytes, frame.chunk_bytes, frame.checksum)
            kind, body = 2, _DATA.pack(*place, frame.header.pack())
        case Status():
            outer, kind, body = _SHORT, _STATUS_KIND, _STATUS.pack(frame.acknowledged, frame.taken, frame.connections)
        case Bye():
            reason = "".join(letter for letter in frame.reason if letter.isprintable()).encode(errors="replace")
            kind, body = 4, _BYE.pack(frame.sent, reason[:_REASON_BYTES].decode(errors="ignore").encode())
    wire = outer.pack(MAGIC, VERSION, kind, 0, body, 0)
    return wire[:-4] + checksum(wire[:-4]).to_bytes(4, "little")


def decode(wire: Buffer) -> Frame:
    """The frame that these bytes are; FrameError if they are none."""
    if len(wire) < LEAST_FRAME_BYTES or len(wire) != frame_bytes(wire):
        raise FrameError(f"a frame has {LEAST_FRAME_BYTES} or {FRAME_BYTES} bytes, this one {len(wire)}")
    outer = _SHORT if len(wire) == LEAST_FRAME_BYTES else _LONG
    magic, version, kind, zero, body, crc = outer.unpack(wire)
    if magic != MAGIC:
        raise FrameError(f"not a frame: begins with {magic!r}")
    if crc != checksum(memoryview(wire)[:-4]):
        raise FrameError("the frame's checksum is wrong")
    if version != VERSION:
        raise VersionError(f"speaks version {version} of the protocol, this side speaks {VERSION}")
    if kind not in _READERS:
        raise FrameError(f"unknown kind of frame {kind}")
    shape, read = _READERS[kind]
    if zero or any(body[shape.size :]):
        raise FrameError("the frame has bytes where none belong")
    return read(body[: shape.size])


def _pack_hello(frame: Hello) -> bytes:
    return _HELLO.pack(
        pack_name(frame.job),
        pack_name(frame.node),
        pack_name(frame.channel),
        frame.session,
        frame.window_bytes,
        frame.max_buffer_bytes,
        frame.max_chunk_bytes,
        frame.peer_timeout_ms,
        frame.resumes,
    )


def _read_hello(body: bytes) -> Hello:
    job, node, channel, session, window, buffer, chunk, timeout, resumes = _HELLO.unpack(body)
    if chunk < LEAST_CHUNK_BYTES or timeout < LEAST_PEER_TIMEOUT_MS or buffer == 0 or buffer > window or resumes > 1:
        raise FrameError("the greeting's limits make no sense")
    return Hello(
        job=unpack_name(job, "job"),
        node=unpack_name(node, "node"),
        channel=unpack_name(channel, "channel"),
        session=session,
        window_bytes=window,
        max_buffer_bytes=buffer,
        max_chunk_bytes=chunk,
        peer_timeout_ms=timeout,
        resumes=bool(resumes),
    )


def _read_data(body: bytes) -> Data:
    number, offset, total, chunk, crc, header = _DATA.unpack(body)
    if chunk == 0 or offset % chunk or (offset >= total and offset > 0):
        raise FrameError(f"a piece at {offset} of {total} bytes cut by {chunk} makes no sense")
    return Data(
        header=Header.unpack(header), number=number, offset=offset, total_bytes=total, chunk_bytes=chunk, checksum=crc
    )


def _read_status(body: bytes) -> Status:
    acknowledged, taken, connections = _STATUS.unpack(body)
    return Status(acknowledged=acknowledged, taken=taken, connections=connections)


def _read_bye(body: bytes) -> Bye:
    sent, reason = _BYE.unpack(body)
    try:
        text = reason.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise FrameError("the farewell's reason is not text") from None
    if not text.isprintable():
        raise FrameError("the farewell's reason is not printable")
    return Bye(sent=sent, reason=text)


_READERS: dict[int, tuple[struct.Struct, Callable[[bytes], Frame]]] = {
    1: (_HELLO, _read_hello),
    2: (_DATA, _read_data),
    _STATUS_KIND: (_STATUS, _read_status),
    4: (_BYE, _read_bye),
}
