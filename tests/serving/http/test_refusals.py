"""Wrong requests get an error in OpenAI's format that says what is wrong; never a 5xx."""

import gc
import json
from collections.abc import Iterator
from typing import Any, NoReturn

import httpx2 as httpx
import openai
import pytest
from pydantic import ValidationError

from geotrain.serving.contract import Broken, Busy
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.prompts import order_of
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.http.schemas import ChatRequest, CompletionRequest
from geotrain.serving.model_card import ModelCard
from tests.serving import patient
from tests.serving.http.toy import MODEL, Site, Toy, card, served

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(Toy()) as site:
        yield site


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    ("path", "change", "param", "message"),
    [
        pytest.param(TEXT, {"prompt": 5}, "prompt", "prompt is 5 and must be a text", id="prompt"),
        pytest.param(TEXT, {"prompt": []}, "prompt", "prompt is a list of 0", id="no prompts"),
        pytest.param(TEXT, {"prompt": ""}, "prompt", "the prompt is empty", id="empty prompt"),
        pytest.param(
            TEXT, {"prompt": [1, "a"]}, "prompt", r"prompt\[1\] is 'a' and must be a whole", id="mixed prompt"
        ),
        pytest.param(TEXT, {"prompt": ["a"] * 65}, "prompt", "list of at most 64", id="too many prompts"),
        pytest.param(TEXT, {"prompt": [999]}, "prompt", "token 999 and must have tokens below 257", id="token"),
        pytest.param(TEXT, {"prompt": "a\ud800"}, "prompt", "prompt is 'a.ud800'", id="half a surrogate pair"),
        pytest.param(TEXT, {"max_tokens": 0}, "max_tokens", "max_tokens is 0 and must be at least 1", id="no tokens"),
        pytest.param(TEXT, {"max_tokens": 64}, "prompt", "1 token .* 64, .* at most 64", id="too long"),
        pytest.param(CHAT, {"max_tokens": 64}, "messages", "at most 64", id="too long a conversation"),
        pytest.param(TEXT, {"prompt": "a" * 64}, "prompt", "64 tokens .* at most 64", id="no room"),
        pytest.param(TEXT, {"temperature": 3}, "temperature", "temperature is 3 and must be at most 2", id="hot"),
        pytest.param(TEXT, {"temperature": "1"}, "temperature", "must be a number", id="number as text"),
        pytest.param(TEXT, {"temperature": float("nan")}, "temperature", "nan and must be", id="not a number"),
        pytest.param(TEXT, {"top_p": 0}, "top_p", "must be above 0", id="top_p"),
        pytest.param(TEXT, {"seed": 1 << 70}, "seed", "seed is 1180591620717411303424", id="seed"),
        pytest.param(TEXT, {"stop": [""]}, "stop", r"stop\[0\] is ''", id="empty stop"),
        pytest.param(TEXT, {"stop": ["x"] * 17}, "stop", "list of at most 16", id="too many stops"),
        pytest.param(
            CHAT,
            {"messages": [{"role": "user", "content": ""}] * 2049},
            "messages",
            "list of at most 2048",
            id="too many messages",
        ),
        pytest.param(
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 1025}]},
            "messages",
            "list of at most 1024",
            id="too many parts",
        ),
        pytest.param(TEXT, {"prompt": [1] * ((1 << 20) + 1)}, "prompt", "at most 1048576", id="too many tokens"),
        pytest.param(TEXT, {"n": 2}, None, "n can only be 1 on this server", id="n"),
        pytest.param(TEXT, {"echo": True}, None, "echo can only be false", id="echo"),
        pytest.param(TEXT, {"logprobs": 0}, None, "logprobs can only be false", id="logprobs"),
        pytest.param(CHAT, {"tools": [{}]}, None, r"tools can only be \[\]", id="tools"),
        pytest.param(CHAT, {"audio": {}}, None, "audio is not supported", id="audio"),
        pytest.param(TEXT, {"stream_options": {}}, None, "only allowed when stream is true", id="stream options"),
        pytest.param(CHAT, {"messages": []}, "messages", "messages is a list of 0", id="no messages"),
        pytest.param(CHAT, {"messages": [{"role": "king", "content": ""}]}, "messages", "role is 'king'", id="role"),
        pytest.param(
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
            r"messages\[0\].content\[0\].type is 'image_url' and must be 'text'",
            id="image",
        ),
    ],
)
def test_wrong_fields(site: Site, path: str, change: dict[str, Any], param: str | None, message: str):
    right = {"prompt": "a"} if path == TEXT else {"messages": [{"role": "user", "content": "hi"}]}
    body = json.dumps({"model": MODEL} | right | change)
    answer = patient.post(site.url + path, content=body, headers={"content-type": "application/json"})
    error = error_of(answer)
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    with pytest.raises(ValueError, match=message):
        raise ValueError(error["message"])
    assert site.engine.prompts == []


@pytest.mark.parametrize(
    ("path", "change"),
    [
        pytest.param(TEXT, {"prompt": [-1] * 1_000_000}, id="tokens"),
        pytest.param(TEXT, {"prompt": [[-1] * 1_000_000] * 2}, id="lists of tokens"),
        pytest.param(TEXT, {"prompt": [None] * 500_000}, id="prompts"),
        pytest.param(TEXT, {"prompt": "a", "stop": [1] * 1_000_000}, id="stops"),
        pytest.param(CHAT, {"messages": [0] * 1_000_000}, id="messages"),
        pytest.param(CHAT, {"messages": [{"role": "user", "content": [0] * 1_000_000}]}, id="parts"),
    ],
)
def test_checking_stops_at_the_first_mistake_of_a_list(path: str, change: dict[str, Any]):
    """A million of them took minutes of the event loop, and of its memory."""
    schema = CompletionRequest if path == TEXT else ChatRequest
    with pytest.raises(ValidationError) as raised:
        schema.model_validate({"model": MODEL} | change)
    assert raised.value.error_count() <= 4


def no_tokenizing(*asked: object) -> NoReturn:
    raise AssertionError("a text that cannot fit was tokenized")


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        pytest.param(TEXT, {"prompt": "a" * 1_000_000}, "prompt", id="text"),
        pytest.param(TEXT, {"prompt": ["a", "a" * 1_000_000]}, "prompt", id="one of several"),
        pytest.param(CHAT, {"messages": [{"role": "user", "content": "a" * 500_000}] * 2}, "messages", id="chat"),
    ],
)
def test_a_text_that_cannot_fit_is_not_tokenized(
    path: str, change: dict[str, Any], param: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ModelCard, "encode", no_tokenizing)
    monkeypatch.setattr(ModelCard, "chat", no_tokenizing)
    body = json.dumps({"model": MODEL} | change).encode()
    with pytest.raises(Refusal, match="1000000 characters and must have at most") as raised:
        order_of(body, CompletionRequest if path == TEXT else ChatRequest, [card()])
    assert (raised.value.status, raised.value.code, raised.value.param) == (400, "context_length_exceeded", param)


def test_tokenizing_stops_at_the_first_prompt_that_does_not_fit(monkeypatch: pytest.MonkeyPatch):
    tokenized: list[str] = []

    def encode(self: ModelCard, text: str) -> tuple[int, ...]:
        tokenized.append(text)
        return (1,) * 64

    monkeypatch.setattr(ModelCard, "encode", encode)
    body = json.dumps({"model": MODEL, "prompt": ["a", "b", "c"]}).encode()
    with pytest.raises(Refusal, match="the prompt has 64 tokens"):
        order_of(body, CompletionRequest, [card()])
    assert tokenized == ["a"]


@pytest.mark.parametrize(
    "content",
    [b"{", b"", b"[]", b"null", b'"\xff"', b'{"model": "\xff"}', b"[" * 100_000, b"9" * 5000, b"\0"],
    ids=["cut off", "empty", "list", "null", "not UTF-8", "not UTF-8 inside", "deep", "long number", "zero"],
)
def test_bodies_that_are_no_json_object(site: Site, content: bytes):
    answer = patient.post(site.url + TEXT, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_json")


def test_a_body_must_say_that_it_is_json(site: Site):
    answer = patient.post(site.url + TEXT, content=b"{}", headers={"content-type": "text/plain"})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2", 404, "not_found"),
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("DELETE", f"/v1/models/{MODEL}", 405, "method_not_allowed"),
        ("GET", "/v1/models/", 404, "model_not_found"),
    ],
)
def test_wrong_routes(site: Site, method: str, path: str, status: int, code: str):
    answer = patient.request(method, site.url + path)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)


def test_an_unknown_model_is_not_found(site: Site):
    with site.client() as client, pytest.raises(openai.NotFoundError) as raised:
        client.completions.create(model="gpt", prompt="a")
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


def test_a_busy_engine_says_when_to_come_back():
    with served(Toy(capacity=0)) as site, site.client() as client:
        for stream in (False, True):
            with pytest.raises(openai.RateLimitError, match=r"would take 3\.2 s") as raised:
                client.completions.create(model=MODEL, prompt="a", stream=stream)
            headers = raised.value.response.headers
            assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1200")
            assert raised.value.code == "rate_limit_exceeded"


def errors_alive() -> int:
    # isinstance would ask every object for its class, and some of torch's warn then.
    return sum(type(one) is Busy for one in gc.get_objects())


def test_who_is_turned_away_leaves_nothing_for_the_garbage_collector():
    gc.collect()
    gc.disable()
    before = errors_alive()
    try:
        with served(Toy(capacity=0)) as site:
            for stream in (False, True) * 10:
                body = {"model": MODEL, "prompt": "a", "stream": stream}
                assert patient.post(f"{site.url}{TEXT}", json=body).status_code == 429
            # The server may still be busy with the last ones.
            assert errors_alive() < before + 10
    finally:
        gc.enable()


def test_several_prompts_are_refused_together():
    with served(Toy(capacity=2, holds_at=0)) as site, site.client() as client:
        with pytest.raises(openai.RateLimitError):
            client.completions.create(model=MODEL, prompt=["a", "b", "c"])
        assert site.engine.under_way == set()


def test_a_service_that_ends_takes_nothing_new():
    with served(Toy(drains=True)) as site, site.client() as client:
        with pytest.raises(openai.InternalServerError, match="about to end") as raised:
            client.completions.create(model=MODEL, prompt="a")
        assert (raised.value.status_code, raised.value.code) == (503, "draining")


def chunked(size_bytes: int) -> Iterator[bytes]:
    for _ in range(size_bytes // 1000):
        yield b" " * 1000


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "chunked"])
def test_a_large_body_is_not_read(is_declared: bool):
    with served(Toy(), limits=Limits(max_body_bytes=10_000)) as site:
        answer = patient.post(site.url + TEXT, content=b" " * 50_000 if is_declared else chunked(50_000))
        assert (answer.status_code, error_of(answer)["code"]) == (413, "body_too_large")
        assert patient.post(site.url + TEXT, content=b" " * 9_000).status_code == 400


def test_tokens_count_with_the_bodies():
    body = {"model": MODEL, "prompt": [[1] * 40] * 64, "max_tokens": 1}
    for most_bytes, status in ((12_000, 429), (30_000, 200)):
        with served(Toy(), limits=Limits(max_body_bytes=10_000, max_held_bytes=most_bytes)) as site:
            answer = patient.post(site.url + TEXT, json=body)
            assert answer.status_code == status
            assert status == 200 or error_of(answer)["code"] == "too_many_bytes"


def test_bodies_are_bounded_together():
    limits = Limits(max_body_bytes=10_000, max_held_bytes=15_000)
    body = {"model": MODEL, "prompt": "a", "stream": True, "made_up": "x" * 9_000}
    with served(Toy(holds_at=1), limits=limits) as site:
        with patient.stream("POST", site.url + TEXT, json=body) as held:
            assert held.status_code == 200
            assert patient.post(site.url + TEXT, json=body).status_code == 429
        site.entries(2)
        with patient.stream("POST", site.url + TEXT, json=body) as again:
            assert again.status_code == 200


@pytest.mark.parametrize(
    ("failure", "status", "code", "message"),
    [
        pytest.param(Broken("the decoder was lost"), 500, "request_lost", "the decoder was lost", id="lost"),
        pytest.param(RuntimeError("secret"), 500, "internal_error", "its log says more", id="unexpected"),
    ],
)
def test_an_engine_that_fails_at_once(failure: Exception, status: int, code: str, message: str):
    with served(Toy(fails_at=0, failure=failure)) as site:
        for stream in (False, True):
            answer = patient.post(site.url + TEXT, json={"model": MODEL, "prompt": "a", "stream": stream})
            error = error_of(answer)
            assert (answer.status_code, error["code"], error["type"]) == (status, code, "server_error")
            assert message in error["message"] and "secret" not in answer.text
