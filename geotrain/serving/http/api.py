"""OpenAI's HTTP interface on an engine: completions, chat, models; health, readiness and metrics.

Routes only translate. Keys, limits of size and time, clients that leave, errors and the log are the door's.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

import geotrain
from geotrain.serving.contract import Engine, Finish, Piece, Prompt
from geotrain.serving.http.access_log import AccessLog, Entry
from geotrain.serving.http.auth import Keys
from geotrain.serving.http.door import METRICS, OPENAPI, Door
from geotrain.serving.http.forms import EVENTS, ChatForm, Form, TextForm, usage_of
from geotrain.serving.http.generation import Call, generate
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.prompts import Asked, card_of
from geotrain.serving.http.readers import Readers
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.http.schemas import ChatRequest, CompletionRequest
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard

_COMPLETIONS, _CHAT, _MODELS = "/v1/completions", "/v1/chat/completions", "/v1/models"
_PATHS = {_COMPLETIONS, _CHAT, _MODELS, "/health", "/ready", METRICS}
_BODIES: dict[str, type[Asked]] = {_COMPLETIONS: CompletionRequest, _CHAT: ChatRequest}
_ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"description": "An error in OpenAI's format"}}
_STREAMS: dict[int | str, dict[str, Any]] = {200: {"content": {EVENTS: {}}}, **_ERRORS}
_JSON = re.compile(r"application/([\w.-]+\+)?json *(;.*)?", re.IGNORECASE)
_TOKEN_BYTES = 4
"""Of memory, counted with the bytes of bodies."""

Pieces = AsyncGenerator[tuple[int, Piece], None]


def create_app(
    engine: Engine,
    readers: Readers,
    *,
    keys: Keys,
    limits: Limits,
    metrics: Metrics,
    log: AccessLog,
    metrics_keys: Keys | None = None,
) -> FastAPI:
    """The application; it does not start or end the engine. Without `metrics_keys`, `keys` open the metrics too."""
    app = FastAPI(
        openapi_url=OPENAPI,
        title="geotrain",
        version=geotrain.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    @app.post(_COMPLETIONS, responses=_STREAMS)
    async def completions(request: Request) -> Response:
        """Continue a text."""
        return await answer(request, TextForm)

    @app.post(_CHAT, responses=_STREAMS)
    async def chat(request: Request) -> Response:
        """Answer the last message of a conversation."""
        return await answer(request, ChatForm)

    @app.get(_MODELS, responses=_ERRORS)
    async def models() -> dict[str, Any]:
        """What is served."""
        return {"object": "list", "data": [_shown(card) for card in engine.models]}

    @app.get(_MODELS + "/{name:path}", responses=_ERRORS)
    async def model(name: str) -> dict[str, Any]:
        """One of them."""
        return _shown(card_of(engine.models, name))

    @app.get("/health")
    async def health() -> dict[str, str]:
        """The process lives."""
        return {"status": "ok"}

    @app.get("/ready", responses={503: {"description": "Why not"}})
    async def ready() -> Response:
        """Requests are taken."""
        reason = engine.ready()
        return JSONResponse({"ready": reason is None, "reason": reason}, status_code=503 if reason else 200)

    @app.get(METRICS, response_class=PlainTextResponse)
    async def prometheus() -> Response:
        """For Prometheus."""
        return PlainTextResponse(metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def answer(request: Request, kind: type[Form]) -> Response:
        entry, held = request.state.entry, request.state.held
        caller = held.caller
        if not _JSON.fullmatch(request.headers.get("content-type", "")):
            raise Refusal(400, "invalid_json", "the body must be JSON, with content-type: application/json")
        order = await readers.read(await request.body(), _BODIES[request.url.path], caller.tenant)
        held.read(_TOKEN_BYTES * order.prompt_tokens)
        form = kind(order.model, counts_usage=order.counts_usage)
        entry.model, entry.answer, entry.tenant = order.model, form.id, caller.tenant or order.user
        prompts = [
            Prompt(
                id=f"{form.id}-{index}",
                model=order.model,
                tokens=tokens,
                sampling=sampling,
                arrival_s=entry.arrival_s,
                tenant=entry.tenant,
                priority=caller.priority,
            )
            for index, (tokens, sampling) in enumerate(order.prompts)
        ]
        entry.prompt_tokens = order.prompt_tokens
        held.take(entry.prompt_tokens + sum(prompt.sampling.max_tokens for prompt in prompts))
        pieces = generate([Call(engine, prompt, entry=entry, metrics=metrics) for prompt in prompts])
        if not order.stream:
            return JSONResponse(await _whole(pieces, form, entry))
        events = _events(pieces, form, entry)
        return _EventStream(await anext(events), events)

    app.openapi = partial(_described, app)  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, _failed)
    app.add_middleware(
        Door,
        keys=keys,
        metrics_keys=keys if metrics_keys is None else metrics_keys,
        limits=limits,
        metrics=metrics,
        log=log,
        paths=_PATHS,
    )
    return app


class _EventStream(Response):
    """Server-sent events; the first one is there before the status is sent."""

    def __init__(self, first: bytes, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(media_type=EVENTS, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events) as events:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for content in events:
                await send({"type": "http.response.body", "body": content, "more_body": True})
            await send({"type": "http.response.body"})


async def _events(pieces: Pieces, form: Form, entry: Entry) -> AsyncGenerator[bytes, None]:
    """One for each piece that has something to say; the first always has: the answer begins."""
    begun = False
    async with aclosing(pieces):
        async for index, piece in pieces:
            if piece.text or piece.finish or not begun:
                begun = True
                yield form.chunk(index, piece.text, piece.finish)
    yield form.last(usage_of(entry.prompt_tokens, entry.completion_tokens))


async def _whole(pieces: Pieces, form: Form, entry: Entry) -> dict[str, Any]:
    texts: dict[int, list[str]] = {}
    ends: dict[int, Finish] = {}
    async with aclosing(pieces):
        async for index, piece in pieces:
            texts.setdefault(index, []).append(piece.text)
            if piece.finish is not None:
                ends[index] = piece.finish
    choices = [("".join(texts[index]), ends[index]) for index in sorted(texts)]
    return form.whole(choices, usage_of(entry.prompt_tokens, entry.completion_tokens))


def _shown(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.name,
        "object": "model",
        "created": card.created,
        "owned_by": "geotrain",
        "max_model_len": card.max_model_len,
    }


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI schema, with the bodies that are read by other processes."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, routes=app.routes)
        kinds = [(body, "validation") for body in _BODIES.values()]
        _, shapes = models_json_schema(kinds, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        found.setdefault("components", {}).setdefault("schemas", {}).update(shapes["$defs"])
        for path, body in _BODIES.items():
            schema = {"$ref": f"#/components/schemas/{body.__name__}"}
            found["paths"][path]["post"]["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": schema}},
            }
        app.openapi_schema = found
    return app.openapi_schema


async def _failed(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such route, wrong method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail.lower()}"
    raise Refusal(error.status_code, error.detail.lower().replace(" ", "_"), message, headers=error.headers)
