"""Listening: uvicorn around the application, for as long as a block lasts."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import uvicorn
from starlette.types import ASGIApp

from geotrain.errors import InputError
from geotrain.serving.http.auth import Keys

_BACKLOG = 4096
_KEEP_ALIVE_S = 75
_LAST_WORDS_S = 5.0
"""For telling those who were cancelled."""


@asynccontextmanager
async def listening(
    app: ASGIApp, *, host: str, port: int, keys: Keys, left_s: Callable[[], float]
) -> AsyncIterator[int]:
    """Answer requests inside the block, which gets the port; port 0 takes any.

    At the end of the block no more are taken, and those under way have `left_s`, asked then, to finish. Signals are
    the caller's.
    """
    if not keys and not _is_loopback(host):
        raise InputError(f"host: {host} can be reached by others, so API keys are needed; without keys take 127.0.0.1")
    sock = _bound(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield sock.getsockname()[1]
    finally:
        config.timeout_graceful_shutdown = round(max(1.0, left_s()))
        server.should_exit = True
        await running
        if left := server.server_state.tasks:
            await asyncio.wait(left, timeout=_LAST_WORDS_S)


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"{host}:{port}: cannot be listened on: {error.strerror}") from None
