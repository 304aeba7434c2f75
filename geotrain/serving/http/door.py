"""What every request passes before and after its route: key, id, size, deadline, client gone, errors, log.

An ASGI application around another one. It reads the body as a whole, then watches the connection while the inner
application works and cancels that when the client leaves. Whatever error the inner one ends with is answered here.
"""

import asyncio
import re
from collections.abc import Awaitable, Collection, Mapping
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geotrain.serving.contract import Draining
from geotrain.serving.http.access_log import AccessLog, Entry
from geotrain.serving.http.auth import Caller, Keys
from geotrain.serving.http.forms import EVENTS, event
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.quotas import Held, Quotas
from geotrain.serving.http.refusals import CLIENT_GONE, Refusal
from geotrain.serving.metrics import Metrics

_LAST_WORDS_S = 2.0
"""For telling a client what went wrong, before its connection is dropped."""
_API = "/v1/"
METRICS, OPENAPI = "/metrics", "/openapi.json"
_STRANGER_BYTES = 1024
"""What is read of a body that needs no key: nothing there takes one, and all bodies share the room of the tenants."""
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Door:
    """The inner application finds its `entry` of the log and what it has `held` of its quota in the request's state."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        metrics_keys: Keys,
        limits: Limits,
        metrics: Metrics,
        log: AccessLog,
        paths: Collection[str],
    ) -> None:
        """`paths` are those that metrics tell apart; `metrics_keys` open the metrics and nothing else."""
        self._app = app
        self._keys, self._metrics_keys = keys, metrics_keys
        self._limits = limits
        self._metrics = metrics
        self._log = log
        self._paths = paths
        self._quotas = Quotas(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        entry = Entry(id=_request_id(headers), method=scope["method"], path=scope["path"])
        try:
            await self._answer(scope, headers, receive, _Reply(send, entry))
        except _ClientGoneError as gone:
            entry.status, entry.error = CLIENT_GONE, str(gone)
        finally:
            self._log.write(entry)
            self._metrics.responded(entry.path if entry.path in self._paths else "other", entry.status)

    async def _answer(self, scope: Scope, headers: Mapping[str, str], receive: Receive, reply: "_Reply") -> None:
        try:
            caller = self._caller(scope["path"], headers)
            reply.entry.tenant = caller.tenant
            held = self._quotas.enter(caller)
            scope.setdefault("state", {}).update(entry=reply.entry, held=held)
            try:
                await self._enter(scope, headers, receive, reply, held)
            finally:
                held.leave()
        except _ClientGoneError:
            raise
        except Exception as error:
            refusal = Refusal.of(error, request_id=reply.entry.id)
            self._metrics.refused(refusal.code)
            _let_go(error)
            try:
                async with asyncio.timeout(_LAST_WORDS_S):
                    await reply.refuse(refusal)
            except TimeoutError:
                raise _ClientGoneError("client_stalled") from None

    def _caller(self, path: str, headers: Mapping[str, str]) -> Caller:
        given = headers.get("authorization", "")
        caller: Caller | None = Caller()
        if path.startswith(_API) or path == OPENAPI:
            caller = self._keys.caller(given)
        elif path == METRICS and self._metrics_keys.caller(given) is None:
            caller = None
        if caller is None:
            message = "the API key is missing or not known; send it as `Authorization: Bearer KEY`"
            raise Refusal(401, "invalid_api_key", message, headers={"www-authenticate": "Bearer"})
        return caller

    async def _enter(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, reply: "_Reply", held: Held
    ) -> None:
        declared = headers.get("content-length", "")
        most = self._limits.max_body_bytes if scope["path"].startswith(_API) else _STRANGER_BYTES
        _check_size(int(declared) if declared.isdecimal() else 0, most)
        body = await self._read_in_time(receive, reply.entry, held, most)
        await self._watch(self._app(scope, _replay(body), reply.send), receive, reply)

    async def _read_in_time(self, receive: Receive, entry: Entry, held: Held, most: int) -> bytes:
        limit_s = min(self._limits.body_s, self._limits.deadline_s)
        try:
            async with asyncio.timeout(limit_s):
                return await _read(receive, entry, held, most)
        except TimeoutError:
            message = f"the body did not arrive within {limit_s:g} s"
            raise Refusal(408, "request_timeout", message) from None

    async def _watch(self, answer: Awaitable[None], receive: Receive, reply: "_Reply") -> None:
        """Let it work while the client stays."""
        work = asyncio.ensure_future(answer)
        gone = asyncio.create_task(_gone(receive))
        left_s = self._limits.deadline_s - reply.entry.age_s
        try:
            await asyncio.wait((work, gone), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not (work.done() or reply.is_complete):
                raise _ClientGoneError("client_gone") if gone.done() else TimeoutError
            await work
        except asyncio.CancelledError:
            raise Draining("the server ended before the answer did") from None
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)


async def _read(receive: Receive, entry: Entry, held: Held, most: int) -> bytes:
    """The whole body, counted while the request is under way."""
    chunks, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGoneError("client_gone")
        chunks.append(message.get("body", b""))
        entry.body_bytes += len(chunks[-1])
        _check_size(entry.body_bytes, most)
        held.read(len(chunks[-1]))
        more = message.get("more_body", False)
    return b"".join(chunks)


def _check_size(size_bytes: int, most: int) -> None:
    if size_bytes > most:
        raise Refusal(413, "body_too_large", f"the body has more than {most} bytes, the most that is read")


def _let_go(error: BaseException | None) -> None:
    """Of the frames it came through, which hold it: else every refusal would be left to the garbage collector."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


class _ClientGoneError(Exception):
    """Nobody is there to be answered; says which way."""


class _Reply:
    """The way back: every answer has its request's id, and the log its status."""

    def __init__(self, send: Send, entry: Entry) -> None:
        self._send = send
        self.entry = entry
        self.is_complete = False
        self._has_events = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.entry.status = message["status"]
            headers = message["headers"]
            self._has_events = any(
                value.startswith(EVENTS.encode()) for name, value in headers if name == b"content-type"
            )
            message["headers"] = [*headers, (b"x-request-id", self.entry.id.encode())]
        else:
            self.is_complete = not message.get("more_body", False)
        try:
            await self._send(message)
        except RuntimeError:  # uvloop's, of a connection that has just been closed
            raise _ClientGoneError("client_gone") from None

    async def refuse(self, refusal: Refusal) -> None:
        """As the answer, or as the last event of one that has begun."""
        self.entry.error = refusal.code
        if self.entry.status == 0:
            body = refusal.body()
            headers = {"content-type": "application/json", "content-length": str(len(body))} | refusal.headers
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            await self.send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
            await self.send({"type": "http.response.body", "body": body})
        elif self._has_events and not self.is_complete:
            await self.send({"type": "http.response.body", "body": event(refusal.content())})


def _request_id(headers: Mapping[str, str]) -> str:
    """The client's if it is harmless, else a new one."""
    given = headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else f"req-{uuid4().hex}"


def _replay(body: bytes) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()  # for ever: who leaves is seen at the door
        return messages.pop()

    return receive


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
