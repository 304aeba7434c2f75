"""One connection between serve, a worker or the decoder: messages, maybe with a tensor's bytes, over asyncio streams.

    header length 4 | payload length 8 | header, JSON | payload

Little-endian. Whatever breaks a rule ends the connection with an error that says which. Nothing is unpickled, and
nobody makes this side take memory that the limits do not allow: before its greeting, next to none.
"""

import asyncio
import hmac
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from geotrain.serving.messages import VERSION, Error, Hello, Message, Role, decode, encode, payload_bytes
from geotrain.transport import ClosedError, DeadlineError, FrameError, RefusedError
from geotrain.transport.errors import plain

Buffer = bytes | bytearray | memoryview

PIECE_BYTES = 1 << 18
"""Payloads are written and read so much at a time."""
_LENGTHS = struct.Struct("<IQ")
_GREETING_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a peer may do."""

    header_bytes: int = 8 << 20
    payload_bytes: int = 1 << 30
    frame_s: float = 30.0
    """For a frame that has begun, either way; a peer that takes longer is gone."""
    greeting_s: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Party:
    """Who this process is, and what it shows for it."""

    role: Role
    name: str
    secret: str = field(repr=False)
    """The same for all processes of a service."""

    @property
    def hello(self) -> Hello:
        """Its greeting."""
        return Hello(secret=self.secret, role=self.role, name=self.name)


class Frame(NamedTuple):
    """What came."""

    message: Message
    payload: bytearray


class Wire:
    """Frames come whole and in order, or a TransportError ends the connection. One task receives, any may send."""

    peer: Hello
    """Who greeted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits) -> None:
        self._reader, self._writer, self._limits = reader, writer, limits
        self._sending = asyncio.Lock()
        self._frames: set[asyncio.Task[None]] = set()
        self._most_bytes = _GREETING_BYTES, 0
        writer.transport.set_write_buffer_limits(high=PIECE_BYTES)

    async def send(self, message: Message, payload: Buffer = b"") -> None:
        """Whoever sends faster than the peer reads, waits. The payload must not be changed any more.

        ClosedError if the peer is gone, or takes too long. A frame that has begun is sent to its end, also when who
        waits for that is cancelled.
        """
        header, data = encode(message), memoryview(payload)
        assert len(data) == data.nbytes == payload_bytes(message), f"{message.kind}: its header says otherwise"
        frame = asyncio.create_task(self._write(_LENGTHS.pack(len(header), data.nbytes) + header, data))
        self._frames.add(frame)
        frame.add_done_callback(self._sent)
        await asyncio.shield(frame)

    def _sent(self, frame: asyncio.Task[None]) -> None:
        self._frames.discard(frame)
        if not frame.cancelled():
            frame.exception()

    async def _write(self, start: bytes, data: memoryview) -> None:
        async with self._sending:
            with self._whole():
                if self._writer.is_closing():
                    raise ClosedError("the connection is closed")
                async with asyncio.timeout(self._limits.frame_s):
                    self._writer.write(start)
                    for at in range(0, data.nbytes, PIECE_BYTES):
                        await self._writer.drain()
                        self._writer.write(data[at : at + PIECE_BYTES])
                    await self._writer.drain()

    async def receive(self, *, deadline_s: float | None = None) -> Frame:
        """The next frame; DeadlineError, which breaks nothing, if none has begun by then.

        ClosedError if the peer is gone, or takes too long; FrameError, which ends it too, if this is no frame.
        """
        try:
            async with asyncio.timeout(deadline_s) as limit:
                lengths = await self._reader.readexactly(_LENGTHS.size)
        except (OSError, EOFError) as error:
            if limit.expired():
                raise DeadlineError("nothing came within the time set") from None
            raise self._lost(error) from None
        with self._whole():
            async with asyncio.timeout(self._limits.frame_s):
                return await self._rest(*_LENGTHS.unpack(lengths))

    async def _rest(self, header_bytes: int, size_bytes: int) -> Frame:
        most_header, most_payload = self._most_bytes
        if header_bytes > most_header or size_bytes > most_payload:
            raise FrameError(
                f"a frame of {header_bytes} + {size_bytes} bytes, allowed are {most_header} + {most_payload}"
            )
        message = decode(await self._reader.readexactly(header_bytes))
        if (told := payload_bytes(message)) != size_bytes:
            raise FrameError(f"a frame of kind {message.kind} with {size_bytes} bytes, and its header says {told}")
        payload = bytearray(size_bytes)
        view, done = memoryview(payload), 0
        while done < size_bytes:
            piece = await self._reader.read(min(PIECE_BYTES, size_bytes - done))
            if not piece:
                raise EOFError
            view[done : done + len(piece)] = piece
            done += len(piece)
        return Frame(message, payload)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Whatever goes wrong in here ends the connection: what follows half a frame cannot be understood."""
        try:
            yield
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        except BaseException:
            self.abort()
            raise

    def _lost(self, error: Exception) -> ClosedError:
        self.abort()
        if isinstance(error, TimeoutError):
            return ClosedError(f"the peer has taken longer than {self._limits.frame_s:g} s over a frame")
        if isinstance(error, EOFError):
            return ClosedError("the peer has hung up")
        return ClosedError(f"the connection is lost: {plain(error)}")

    async def greet(self, me: Party, *, calls: bool) -> None:
        """Say and hear a hello; RefusedError if the peer does not belong here. Nothing else is taken before.

        Who calls speaks first, and is told why if it is refused.
        """
        if calls:
            await self.send(me.hello)
        hello = (await self.receive(deadline_s=self._limits.greeting_s)).message
        try:
            self.peer = self._checked(hello, me)
        except RefusedError as error:
            if not calls:
                await self.send(Error(message=str(error)))
            raise
        if not calls:
            await self.send(me.hello)
        self._most_bytes = self._limits.header_bytes, self._limits.payload_bytes

    def _checked(self, hello: Message, me: Party) -> Hello:
        if isinstance(hello, Error):
            raise RefusedError(hello.message)
        if not isinstance(hello, Hello):
            raise RefusedError("speaks before it greets")
        if hello.version != VERSION:
            raise RefusedError(f"speaks version {hello.version}, this side speaks {VERSION}")
        if not hmac.compare_digest(hello.secret.encode(), me.secret.encode()):
            raise RefusedError("has another secret")
        return hello

    def abort(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Hang up when all is sent, or cannot be."""
        self._writer.close()
        with suppress(OSError):
            async with asyncio.timeout(self._limits.greeting_s):
                await self._writer.wait_closed()
        self.abort()
