"""HTTPS: the certificate from its files, and a server whose limits hold from before the handshake.

An event loop's own TLS server tells of a connection when its handshake is complete: one that never completes would not
be counted. So connections are accepted and counted here, and then handed to the loop.
"""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any, cast

import uvicorn

from geotrain.errors import InputError
from geotrain.files import read_text
from geotrain.serving.http.connection import Connections, LimitedProtocol, group_of
from geotrain.serving.http.refusals import Refusal

_GOODBYE_S = 2.0
"""For a client to confirm the end of a connection."""
_NO_FILES_S = 0.2
"""Before another connection is accepted when that has failed, mostly for want of open files."""


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and newer with this certificate chain; InputError if the files are not right."""
    for path, mark, what in ((certificate, "CERTIFICATE", "certificate"), (key, "PRIVATE KEY", "private key")):
        if f"{mark}-----" not in read_text(path):
            raise InputError(f"{path}: has no {what} in PEM, which begins with -----BEGIN {mark}-----")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password here, one would be asked for at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        expected = "they must be a certificate and its private key without a password"
        raise InputError(f"{certificate}, {key}: {expected}: {reason.replace('_', ' ').lower()}") from None
    return context


class TlsServer(uvicorn.Server):
    """Accepts connections itself; handshakes are counted and have the time of a request's head."""

    def __init__(self, config: uvicorn.Config, connections: Connections, context: ssl.SSLContext) -> None:
        super().__init__(config)
        self._connections, self._context = connections, context
        self._tasks: set[asyncio.Task[None]] = set()
        """That accept, and that shake hands."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await self.lifespan.startup()
        self.servers = []
        for sock in sockets or ():
            sock.setblocking(False)
            self._start(self._accept(sock))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, drop unfinished handshakes, and end as uvicorn does."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(sock)
            except OSError:
                await asyncio.sleep(_NO_FILES_S)
                continue
            group = group_of(str(address[0]))
            try:
                self._connections.enter(group)
            except Refusal as refusal:
                # An error that the client could read would need the handshake.
                self._connections.leave(group)
                self._connections.refused(group, refusal.code)
                client.close()
            else:
                self._start(self._shake_hands(client, group))

    async def _shake_hands(self, client: socket.socket, group: str) -> None:
        protocol = cast("LimitedProtocol", self._protocol())
        protocol.group = group
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                client,
                ssl=self._context,
                ssl_handshake_timeout=self._connections.limits.head_s,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except OSError:
            self._connections.refused(group, "tls_handshake")
        finally:
            if protocol.transport is None and protocol.group is not None:
                self._connections.leave(group)

    def _protocol(self) -> asyncio.Protocol:
        """As uvicorn makes one for each connection."""
        made: Any = self.config.http_protocol_class
        return cast(
            "asyncio.Protocol",
            made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=None),
        )
