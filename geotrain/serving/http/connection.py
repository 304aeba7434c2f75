"""One connection of a client, on uvicorn's protocol: bounds of its request heads, of its time, and of its number.

uvicorn reads heads of any length, waits for them without limit, and takes any number of connections.
"""

import asyncio
import ipaddress
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from geotrain.serving.http.limits import Limits
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.metrics import Metrics

_PIECE_BYTES = 4096
"""What the parser gets at once while a head is read, so that a head is refused soon after its limit."""
_LINGER_S = 2.0
"""For a client to read an error before its connection is dropped; what it still sends is thrown away."""
_LOG_EVERY_S = 10.0
"""Refused connections are logged at most so often, however many there are."""
_log = logging.getLogger(__name__)
_uvicorn_log = logging.getLogger(f"{__name__}.uvicorn")
# uvicorn warns of every request that is wrong; those are counted here.
_uvicorn_log.setLevel(logging.ERROR)


class Connections:
    """Counts the open connections, in all and by address, and those that a limit has ended."""

    def __init__(self, limits: Limits, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._metrics, self._clock = limits, metrics, clock
        self._open: Counter[str] = Counter()
        self._total = 0
        self._unlogged: Counter[str] = Counter()
        self._logged_s = -math.inf

    def enter(self, address: str) -> None:
        """Count one more; Refusal if that is too many. Either way `leave` must follow."""
        total, most = self.limits.max_connections, self.limits.connections_per_address
        self._open[address] += 1
        self._total += 1
        if self._total > total:
            raise Refusal(503, "too_many_connections", f"the server has {total} connections, the most that it takes")
        if self._open[address] > most:
            message = f"{address} has {most} connections to this server, the most that one address may have"
            raise Refusal(429, "too_many_connections_of_address", message)

    def leave(self, address: str) -> None:
        """Count one less."""
        self._total -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def refused(self, address: str, reason: str) -> None:
        """Count a connection that a limit has ended, and log it if the last such line was long ago."""
        self._metrics.refused(reason)
        self._unlogged[reason] += 1
        if self._clock() - self._logged_s >= _LOG_EVERY_S:
            counts = ", ".join(f"{number} {name}" for name, number in self._unlogged.most_common())
            _log.warning("refused connections since the last such line: %s; the last from %s", counts, address)
            self._unlogged.clear()
            self._logged_s = self._clock()


def group_of(address: str) -> str:
    """The address that is counted: of IPv6 its network of 64 bits, which one client has as a whole."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol within the limits of all connections of a server."""

    group: str | None = None
    """The address that this connection counts for; set before it is made if it has been counted already."""
    _refused = False
    """Whether the connection ends: whatever comes is thrown away."""
    _in_head = True
    """Whether the next byte belongs to a request's head, or to none yet."""
    _unwanted = False
    """Whether the request was answered before it was all there: its rest is thrown away, then the next may come."""
    _loose_bytes = 0
    """Read since there was a head or a part of a body: the parser keeps them."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, connections: Connections, **more: Any) -> None:
        super().__init__(**more)
        self.logger = _uvicorn_log
        self._open, self._limits = connections, connections.limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        try:
            if self.group is None:
                self.group = group_of(self.client[0] if self.client else "")
                self._open.enter(self.group)
        except Refusal as refusal:
            self._refuse(refusal)
            self.transport.close()
        else:
            self._set_timer(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._unset_keepalive_if_required()
        if self.group is not None:
            self._open.leave(self.group)
            self.group = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head and self._timer is None and not self._refused:
            self._set_timer(self._limits.head_s)
        while data and not self._refused and not self.transport.is_closing():
            size = _PIECE_BYTES if self._in_head else len(data)
            piece, data = data[:size], data[size:]
            self._loose_bytes += len(piece)
            super().data_received(piece)
            self._check_head()

    def _check_head(self) -> None:
        limits = self._limits
        if self._refused:
            return
        if self._loose_bytes > limits.max_head_bytes:
            message = f"the head of the request has more than {limits.max_head_bytes} bytes, the most that is read"
            self._refuse(Refusal(431, "headers_too_large", message))
        elif len(self._headers) > limits.max_headers:
            message = f"the request has more than {limits.max_headers} headers, the most that are read"
            self._refuse(Refusal(431, "headers_too_large", message))

    # Of the parser

    def on_headers_complete(self) -> None:
        self._check_head()
        if self._refused:
            return
        self._in_head, self._loose_bytes = False, 0
        self._set_timer(None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._loose_bytes = True, 0
        if self._unwanted:
            self._unwanted = False
            self._set_timer(None)
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_answering and not self._in_head and not self._refused and not self.transport.is_closing():
            self._unwanted = True
            self._set_timer(_LINGER_S)

    # Both are None before the first request, whatever uvicorn's annotations say.

    @property
    def _headers(self) -> Sequence[tuple[bytes, bytes]]:
        return cast("list[tuple[bytes, bytes]] | None", self.headers) or ()

    @property
    def _is_answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    @property
    def _is_reading(self) -> bool:
        """Whether a body comes whose request is the only one under way, and has no answer yet."""
        return self._is_answering and not self._in_head and not self.cycle.response_started and not self.pipeline

    # Ends

    def _set_timer(self, delay_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else self.loop.call_later(delay_s, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._refused or self._unwanted:
            self.transport.abort()
        elif self._loose_bytes == 0:
            self._open.refused(self.group or "", "silent")
            self.transport.abort()
        else:
            message = f"the head of the request took longer than {self._limits.head_s:g} s"
            self._refuse(Refusal(408, "request_timeout", message))

    def send_400_response(self, msg: str) -> None:
        """As uvicorn does, in the format of all errors."""
        self._refuse(Refusal(400, "invalid_http", "this is not a request of HTTP/1.1"))

    def _refuse(self, refusal: Refusal) -> None:
        """Tell the client, if no answer is under way, and end the connection."""
        self._refused = True
        self._open.refused(self.group or "", refusal.code)
        if self._is_answering and not self._is_reading:
            self.transport.abort()
            return
        if self._is_reading:
            # The application is told that the client has left, and can say no more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = refusal.body()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[refusal.status] + head + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(_LINGER_S)
