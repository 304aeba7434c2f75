"""Requests that do not end well: the client leaves, the engine breaks, time runs out."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import openai
import pytest
import uvloop

from geotrain.serving.chat_template import ChatTemplate
from geotrain.serving.contract import Broken
from geotrain.serving.http.limits import Limits
from geotrain.serving.model_card import ModelCard
from tests.serving import patient
from tests.serving.http.toy import HEAD, MODEL, Site, Toy, card, sent, served, wait_until

pytestmark = pytest.mark.slow


NewLoop = Callable[[], asyncio.AbstractEventLoop]
BODY = {"model": MODEL, "prompt": "a"}


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("holds_at", [0, 3], ids=["before the first token", "between tokens"])
def test_a_client_that_leaves_cancels_its_work(stream: bool, holds_at: int, new_loop: NewLoop):
    with served(Toy(holds_at=holds_at), new_loop=new_loop) as site:
        with sent(site, BODY | {"stream": stream}):
            wait_until(lambda: site.engine.held)
        (entry,) = site.entries(1)
        assert site.engine.under_way == set()
    assert (entry["status"], entry["error"]) == (499, "client_gone")
    assert entry["completion_tokens"] == holds_at
    assert 'finished_reason="abort"' in site.metrics.text().decode()


def test_a_client_that_leaves_takes_all_its_prompts_with_it():
    with served(Toy(holds_at=1)) as site:
        with sent(site, BODY | {"prompt": ["a", "b", "c"]}):
            wait_until(lambda: len(site.engine.under_way) == 3 and site.engine.held)
        site.entries(1)
        assert site.engine.under_way == set()


def test_a_client_that_leaves_while_it_sends_its_body():
    with served(Toy()) as site:
        with socket.create_connection(("127.0.0.1", site.port)) as client:
            client.sendall(HEAD + b"content-length: 100\r\n\r\n{")
        (entry,) = site.entries(1)
    assert (entry["status"], entry["body_bytes"]) == (499, 1)


def broken_stream(site: Site) -> str:
    with site.client() as client, pytest.raises(openai.APIError) as raised:
        for _ in client.completions.create(model=MODEL, prompt="a", stream=True):
            pass
    return str(raised.value)


def test_an_engine_that_breaks_ends_the_stream_with_an_error():
    with served(Toy(fails_at=2, failure=Broken("the decoder was lost"))) as site:
        assert broken_stream(site) == "the decoder was lost"
        (entry,) = site.entries(1)
    assert (entry["status"], entry["error"], entry["completion_tokens"]) == (200, "request_lost", 2)
    assert 'finished_reason="error"' in site.metrics.text().decode()


def test_an_engine_that_ends_without_saying_so_ends_the_stream_with_an_error():
    with served(Toy(ends_at=2)) as site:
        assert broken_stream(site) == "the answer broke off"


def test_a_broken_stream_has_no_done():
    with served(Toy(fails_at=1, failure=Broken("lost"))) as site:
        text = patient.post(f"{site.url}/v1/completions", json=BODY | {"stream": True}).text
    assert text.endswith('"code": "request_lost"}}\n\n') and "[DONE]" not in text


def test_a_request_that_takes_too_long():
    with served(Toy(holds_at=0), limits=Limits(deadline_s=0.2)) as site:
        answer = patient.post(f"{site.url}/v1/completions", json=BODY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
        assert site.engine.under_way == set()


def test_a_stream_that_takes_too_long():
    with served(Toy(holds_at=1), limits=Limits(deadline_s=1.0)) as site:
        assert "longer than this server allows" in broken_stream(site)
        assert site.engine.under_way == set()


def test_a_body_that_takes_too_long():
    with served(Toy(), limits=Limits(body_s=0.2)) as site:
        client = socket.create_connection(("127.0.0.1", site.port))
        with client:
            client.sendall(HEAD + b"content-length: 100\r\n\r\n{")
            answer = b"".join(iter(lambda: client.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 408 ") and b'"code": "request_timeout"' in answer


def test_a_client_that_does_not_read_is_dropped():
    """Its answer is larger than what the kernel holds for it."""
    engine = Toy(words=100_000)
    with served(engine, limits=Limits(deadline_s=5.0)) as site:
        with sent(site, BODY | {"max_tokens": 63, "stream": True}):
            (entry,) = site.entries(1)
        assert (entry["status"], entry["error"]) == (499, "client_stalled")
        assert engine.under_way == set()


def test_a_chat_template_that_does_not_end_keeps_nobody_else_waiting():
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"

    class Endless(Toy):
        @property
        def models(self) -> list[ModelCard]:
            return [mine]

    mine = replace(card(), template=ChatTemplate(endless))
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    with served(Endless(), limit_s=1.0) as site, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(patient.post, f"{site.url}/v1/chat/completions", json=chat)
        assert patient.post(f"{site.url}/v1/completions", json=BODY).status_code == 200
        answer = asked.result()
    assert answer.status_code == 400
    assert "takes more than 1 s of a CPU" in answer.json()["error"]["message"]
