"""How serve, workers and the decoder find each other: all are on one machine, so an address is a socket's path."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from geotrain.errors import InputError
from geotrain.serving.wire import PIECE_BYTES, Limits, Party, Wire
from geotrain.transport import ClosedError, TransportError
from geotrain.transport.errors import plain

_BACKLOG = 256


async def connect(address: str, me: Party, *, limits: Limits | None = None) -> Wire:
    """A connection to who listens there; ClosedError if nobody does, RefusedError if we are not let in."""
    limits = limits or Limits()
    try:
        async with asyncio.timeout(limits.greeting_s):
            streams = await asyncio.open_unix_connection(address, limit=PIECE_BYTES)
    except TimeoutError:
        raise ClosedError(f"{address}: does not answer within {limits.greeting_s:g} s") from None
    except OSError as error:
        raise ClosedError(f"{address}: cannot be reached: {plain(error)}") from None
    wire = Wire(*streams, limits)
    try:
        await wire.greet(me, calls=True)
    except BaseException as error:
        wire.abort()
        if isinstance(error, TransportError):
            raise type(error)(f"{address}: {error}") from None
        raise
    return wire


class Listener:
    """Lets peers in; each is served by a task of its own, until that returns or this closes."""

    def __init__(self, me: Party, serve: Callable[[Wire], Awaitable[object]], *, limits: Limits | None = None) -> None:
        self._me, self._serve, self._limits = me, serve, limits or Limits()
        self._peers: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._file: os.stat_result | None = None
        self.address = ""
        """Where it listens."""

    async def open(self, address: str) -> None:
        """InputError if nobody can listen there. The socket is for this user only, and replaces one left behind."""
        try:
            self._server = await asyncio.start_unix_server(
                self._welcome, sock=_bind(Path(address)), limit=PIECE_BYTES, backlog=_BACKLOG
            )
            self.address, self._file = address, os.stat(address)
        except OSError as error:
            raise InputError(f"{address}: nobody can listen there: {plain(error)}") from None

    async def close(self) -> None:
        """Let nobody in any more, and end who is being served."""
        if self._server is None:
            return
        self._server.close()
        for peer in self._peers:
            peer.cancel()
        await asyncio.gather(*self._peers, return_exceptions=True)
        if self._file is not None:
            _leave(Path(self.address), self._file)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = asyncio.create_task(self._let_in(Wire(reader, writer, self._limits)))
        self._peers.add(peer)
        peer.add_done_callback(self._peers.discard)

    async def _let_in(self, wire: Wire) -> None:
        try:
            # Whatever a peer does wrong has ended its connection; that is all there is to do about it.
            with suppress(TransportError):
                await wire.greet(self._me, calls=False)
                await self._serve(wire)
        finally:
            await wire.close()


def _bind(path: Path) -> socket.socket:
    """Nobody can connect before `listen`, so the mode is right from the first moment on."""
    if path.is_socket():
        path.unlink()
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(path))
        path.chmod(0o600)
    except OSError:
        sock.close()
        raise
    return sock


def _leave(path: Path, mine: os.stat_result) -> None:
    """Unless another one listens there by now."""
    with suppress(FileNotFoundError):
        if os.path.samestat(path.stat(), mine):
            path.unlink()
