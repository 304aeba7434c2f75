"""Long requests are read by other processes: they keep no one waiting, end in time, and leave nothing behind."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import pytest

from geotrain.serving.chat_template import ChatTemplate
from geotrain.serving.http import readers as readers_module
from geotrain.serving.http.auth import Keys
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.prompts import Order, order_of
from geotrain.serving.http.readers import Readers
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.http.schemas import ChatRequest, CompletionRequest
from geotrain.serving.model_card import ModelCard
from tests.serving import patient
from tests.serving.http.toy import MODEL, Toy, card, served, wait_until
from tests.training.launch.runs import alive

pytestmark = pytest.mark.slow

JSON = {"content-type": "application/json"}
ADA, BOB = "sk-ada-0123456789", "sk-bob-0123456789"
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
PICKY = (
    "{% if messages[0].content == 'spin' %}" + ENDLESS + "{% endif %}"
    "{% if messages[0].content == 'swell' %}{{ 'x' * 10000000000 }}{% endif %}{{ messages[0].content }}"
)
MINE = replace(card(), template=ChatTemplate(PICKY))


class Picky(Toy):
    """Its template does not end when it is told to spin."""

    @property
    def models(self) -> list[ModelCard]:
        return [MINE]


def chat(words: str) -> bytes:
    return b'{"model": "%b", "max_tokens": 1, "messages": [{"role": "user", "content": "%b"}]}' % (
        MODEL.encode(),
        words.encode(),
    )


def long(prompt: str, more: str = "") -> bytes:
    return b'{"model": "%b", "prompt": %b, "pad": "%b"%b}' % (
        MODEL.encode(),
        prompt.encode(),
        b"x" * 20_000,
        more.encode(),
    )


def pids(readers: Readers) -> list[int]:
    return [reader._process.pid for reader in readers._all if reader._process is not None]


@asynccontextmanager
async def started(limit_s: float = 20.0) -> AsyncIterator[Readers]:
    async with Readers([MINE], limit_s=limit_s) as readers:
        await readers.start()
        yield readers
        found = pids(readers)
    assert not any(map(alive, found))


async def reads(readers: Readers, words: str) -> bool:
    order = await readers.read(chat(words), ChatRequest, "ada")
    return tuple(order.prompts[0][0]) == card().encode(words)


def same(one: Order, other: Order) -> bool:
    tokens = [[(list(tokens), sampling) for tokens, sampling in order.prompts] for order in (one, other)]
    return tokens[0] == tokens[1] and replace(one, prompts=()) == replace(other, prompts=())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(long('"the sea"'), id="text"),
        pytest.param(long('["a", "bcd"]', ', "stop": ["x", "\\u20ac"], "temperature": 0, "seed": 7'), id="several"),
        pytest.param(long("[[1, 2], [256]]", ', "stream": true, "user": "ada", "max_tokens": 9'), id="tokens"),
    ],
)
def test_a_process_reads_what_would_be_read_here(body: bytes):
    async def story() -> None:
        async with started() as readers:
            assert same(await readers.read(body, CompletionRequest, ""), order_of(body, CompletionRequest, [card()]))

    asyncio.run(story())


def test_a_refusal_comes_back_as_it_is():
    async def story() -> None:
        async with started() as readers:
            with pytest.raises(Refusal, match="token 999 and must have tokens below 257") as raised:
                await readers.read(long("[999]"), CompletionRequest, "")
            assert (raised.value.status, raised.value.code, raised.value.param) == (400, "invalid_value", "prompt")

    asyncio.run(story())


def test_a_template_that_does_not_end_is_ended_and_the_next_conversation_is_read():
    async def story() -> None:
        async with started(limit_s=1.0) as readers:
            with pytest.raises(Refusal, match="takes more than 1 s of a CPU") as raised:
                await reads(readers, "spin")
            assert raised.value.status == 400
            assert await reads(readers, "hello")

    asyncio.run(story())


def test_a_template_that_takes_more_memory_than_it_may():
    async def story() -> None:
        async with started() as readers:
            with pytest.raises(Refusal, match=r"MemoryError|of memory") as raised:
                await reads(readers, "swell")
            assert raised.value.status == 400
            assert await reads(readers, "hello")

    asyncio.run(story())


def test_a_process_that_was_killed_is_started_again():
    async def story() -> None:
        async with started() as readers:
            for pid in pids(readers):
                os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(wait_until, lambda: not any(reader.is_alive for reader in readers._all))
            assert await reads(readers, "hello")

    asyncio.run(story())


def test_reading_is_given_up_when_no_one_waits_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(readers_module, "_GRACE_S", 0.0)

    async def story() -> None:
        async with started(limit_s=1000.0) as readers:
            before = set(pids(readers))
            spinning = asyncio.create_task(reads(readers, "spin"))
            await asyncio.to_thread(wait_until, lambda: readers._jobs)
            spinning.cancel()
            assert await reads(readers, "hello")
            assert len(before - set(pids(readers))) == 1

    asyncio.run(story())


def test_what_takes_much_memory_is_given_back():
    def resident_bytes(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()

    async def story() -> None:
        roomy = replace(card(), max_model_len=1 << 22, max_chars=1 << 24)
        async with Readers([roomy]) as readers:
            await readers.start()
            before = max(map(resident_bytes, pids(readers)))
            order = await readers.read(long('"' + "a b " * 400_000 + '"'), CompletionRequest, "")
            assert order.prompt_tokens == 1_600_000
            assert max(map(resident_bytes, pids(readers))) < before + (150 << 20)

    asyncio.run(story())


def asked(url: str, key: str, words: str) -> httpx.Response:
    headers = JSON | {"authorization": f"Bearer {key}"}
    return patient.post(f"{url}/v1/chat/completions", content=chat(words), headers=headers)


def test_a_tenant_whose_requests_take_long_keeps_no_other_waiting():
    """Its first alone would be read for minutes, and there are many."""
    keys = Keys.parse(f"{ADA} ada\n{BOB} bob", source="keys")
    with served(Picky(), keys=keys, limit_s=1000.0) as site, ThreadPoolExecutor(8) as pool:
        clients = []
        for _ in range(8):
            client = socket.create_connection(("127.0.0.1", site.port))
            body = chat("spin")
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n" % BOB.encode()
            client.sendall(head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            clients.append(client)
        answers = list(pool.map(lambda _: asked(site.url, ADA, "hello"), range(8)))
        assert [answer.status_code for answer in answers] == [200] * 8
        assert not any(entry["tenant"] == "bob" for entry in site.entries(8))
        for client in clients:
            client.close()
        assert {entry["error"] for entry in site.entries(16) if entry["tenant"] == "bob"} == {"client_gone"}


def test_the_time_of_reading_counts_for_the_deadline():
    with served(Picky(), limits=Limits(deadline_s=1.0), limit_s=1000.0) as site:
        answer = asked(site.url, "none", "spin")
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_a_long_body_is_not_read_in_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    """Nor in a thread, which would hold Python's lock all the while."""

    def read_here(*parts: object) -> None:
        raise AssertionError("read in this process")

    monkeypatch.setattr(readers_module, "order_of", read_here)
    with served(Toy()) as site:
        answer = patient.post(f"{site.url}/v1/completions", content=long("[1]"), headers=JSON)
        assert answer.status_code == 200
        answer = patient.post(f"{site.url}/v1/completions", content=long("[" + "1," * 1_000_000 + "1]"), headers=JSON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
