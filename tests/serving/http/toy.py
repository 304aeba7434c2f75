"""An engine in memory that counts, and a real HTTP server around it in a thread."""

import asyncio
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openai
import uvloop

from geotrain.serving.contract import Busy, Draining, Piece, Prompt
from geotrain.serving.http.access_log import AccessLog
from geotrain.serving.http.api import create_app
from geotrain.serving.http.auth import Keys
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.readers import LIMIT_S, Readers
from geotrain.serving.http.server import listening
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard
from geotrain.tokens.tokenizer import Tokenizer

MODEL = "toy/counter"
MAX_MODEL_LEN = 64
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@cache
def card() -> ModelCard:
    """A model with a byte for each token."""
    tokenizer = Tokenizer.train([""], vocab_size=257)
    with TemporaryDirectory() as directory:
        Path(directory, "tokenizer.json").write_text(tokenizer.json)
        return ModelCard.load(
            Path(directory), name=MODEL, created=1_700_000_000, max_model_len=MAX_MODEL_LEN, vocab_size=257
        )


@dataclass
class Toy:
    """Answers every prompt with ` 0 1 2 ...`; faults are set from outside."""

    capacity: int = 1000
    delay_s: float = 0.0
    """Before each piece."""
    holds_at: int | None = None
    """The piece that never comes."""
    fails_at: int | None = None
    failure: Exception = field(default_factory=lambda: RuntimeError("secret"))
    ends_at: int | None = None
    """The piece in place of which it ends without saying so."""
    words: int = 1
    """Repetitions of each piece's text."""
    why_not: str | None = None
    drains: bool = False
    prompts: list[Prompt] = field(default_factory=list)
    under_way: set[str] = field(default_factory=set)
    held: int = 0
    """Requests that have come to where they are held."""

    @property
    def models(self) -> list[ModelCard]:
        return [card()]

    def ready(self) -> str | None:
        return self.why_not

    async def submit(self, prompt: Prompt) -> AsyncGenerator[Piece, None]:
        self.prompts.append(prompt)
        if self.drains:
            raise Draining("the service is about to end")
        if len(self.under_way) >= self.capacity:
            raise Busy("the first token would take 3.2 s, more than 2 s", retry_after_s=1.2)
        self.under_way.add(prompt.id)
        try:
            for number in range(prompt.sampling.max_tokens):
                if number == self.ends_at:
                    return
                yield await self._piece(number, number + 1 == prompt.sampling.max_tokens)
        finally:
            self.under_way.remove(prompt.id)

    async def _piece(self, number: int, last: bool) -> Piece:
        if number == self.fails_at:
            raise self.failure
        if number == self.holds_at:
            self.held += 1
            await asyncio.Event().wait()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return Piece(text=f" {number}" * self.words, token=number, finish="length" if last else None)


@dataclass
class Site:
    """A server that runs."""

    engine: Toy
    metrics: Metrics
    log: io.StringIO
    end: Callable[[], object]
    """Take no more requests."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, *, key: str = "none", max_retries: int = 0) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=max_retries)

    def entries(self, count: int) -> list[dict[str, Any]]:
        """The log's lines, once there are so many."""
        wait_until(lambda: self.log.getvalue().count("\n") >= count)
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


def sent(site: Site, body: Mapping[str, Any]) -> socket.socket:
    """A client that has asked and not yet read."""
    client = socket.create_connection(("127.0.0.1", site.port))
    content = json.dumps(body).encode()
    client.sendall(HEAD + b"content-length: %d\r\n\r\n%b" % (len(content), content))
    return client


@contextmanager
def served(
    engine: Toy,
    *,
    keys: Keys | None = None,
    limits: Limits | None = None,
    drain_s: float = 10.0,
    limit_s: float = LIMIT_S,
    metrics_keys: Keys | None = None,
    tls: ssl.SSLContext | None = None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Iterator[Site]:
    """The server in a thread of its own, on any free port."""
    keys, limits = keys or Keys(), limits or Limits()
    loop = new_loop()
    started, ending = threading.Event(), asyncio.Event()
    end = partial(loop.call_soon_threadsafe, ending.set)
    site = Site(engine=engine, metrics=Metrics(), log=io.StringIO(), end=end)

    async def run() -> None:
        log = AccessLog(site.log)
        async with (
            Readers(engine.models, limit_s=limit_s) as readers,
            listening(
                create_app(
                    engine,
                    readers,
                    keys=keys,
                    metrics_keys=metrics_keys,
                    limits=limits,
                    metrics=site.metrics,
                    log=log,
                ),
                host="127.0.0.1",
                port=0,
                keys=keys,
                limits=limits,
                metrics=site.metrics,
                left_s=lambda: drain_s,
                tls=tls,
            ) as site.port,
        ):
            started.set()
            await ending.wait()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait(100)
        yield site
    finally:
        with suppress(RuntimeError):
            end()
        thread.join()


def wait_until(is_true: Callable[[], object]) -> None:
    """Look until it is; the test's time limit ends this otherwise."""
    while not is_true():
        time.sleep(0.005)
