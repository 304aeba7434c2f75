"""Listening: uvicorn around the application, for as long as a block lasts."""

import asyncio
import ipaddress
import logging
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from geotrain.errors import InputError
from geotrain.serving.http.auth import Keys
from geotrain.serving.http.connection import Connections, LimitedProtocol
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.tls import TlsServer
from geotrain.serving.metrics import Metrics

_BACKLOG = 4096
_log = logging.getLogger(__name__)
_LAST_WORDS_S = 5.0
"""For telling those who were cancelled."""


@asynccontextmanager
async def listening(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    keys: Keys,
    limits: Limits,
    metrics: Metrics,
    left_s: Callable[[], float],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Answer requests inside the block, which gets the port; port 0 takes any. With `tls`, HTTPS only.

    At the end of the block no more are taken, and those under way have `left_s`, asked then, to finish. Signals are
    the caller's.
    """
    _check_host(host, keys)
    within = limits.within(files := _open_files(limits.max_connections))
    if within.max_connections < limits.max_connections:
        message = "max_connections is %d in place of %d: this process may open %d files (ulimit -n)"
        _log.warning(message, within.max_connections, limits.max_connections, files)
    connections = Connections(within, metrics)
    sock = _bound(host, port)
    config = uvicorn.Config(
        app,
        http=partial(LimitedProtocol, connections),  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        backlog=_BACKLOG,
        timeout_keep_alive=limits.idle_s,  # type: ignore[arg-type]  # call_later takes fractions,
    )
    server = _Server(config) if tls is None else _SecureServer(config, connections, tls)
    running = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield sock.getsockname()[1]
    finally:
        config.timeout_graceful_shutdown = round(max(1.0, left_s()))
        server.should_exit = True
        await running
        if left := server.server_state.tasks:
            await asyncio.wait(left, timeout=_LAST_WORDS_S)


def check_address(host: str, port: int, keys: Keys) -> None:
    """Raise InputError if `listening` could not listen there now."""
    _check_host(host, keys)
    _bound(host, port).close()


def _check_host(host: str, keys: Keys) -> None:
    if not keys and not _is_loopback(host):
        raise InputError(f"host: {host} can be reached by others, so API keys are needed; without keys take 127.0.0.1")


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


class _SecureServer(TlsServer, _Server):
    """HTTPS without signal handlers."""


def _open_files(connections: int) -> int:
    """How many files this process may open, after asking for twice as many as there may be connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    wanted = 2 * connections if hard == resource.RLIM_INFINITY else min(2 * connections, hard)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft


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
    except UnicodeError:
        raise InputError(f"host: {host[:80]!r} must be a name or an address, and is neither") from None
