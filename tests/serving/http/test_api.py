"""The real client of OpenAI against a real server."""

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from geotrain.serving.contract import Sampling
from tests.serving import patient
from tests.serving.http.toy import MAX_MODEL_LEN, MODEL, Site, Toy, card, served

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    with served(Toy()) as server:
        yield server


@pytest.fixture
def site(server: Site) -> Site:
    """One server for all; each test sees only its own prompts."""
    server.engine.prompts.clear()
    return server


def test_a_completion(site: Site):
    with site.client() as client:
        answer = client.completions.create(model=MODEL, prompt="hello", max_tokens=3)
    assert [(choice.text, choice.finish_reason) for choice in answer.choices] == [(" 0 1 2", "length")]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 3, 8)
    assert (answer.model, answer.object, answer.id[:5]) == (MODEL, "text_completion", "cmpl-")


def test_a_streamed_completion_is_the_same_text(site: Site):
    with site.client() as client:
        chunks = list(client.completions.create(model=MODEL, prompt="hello", max_tokens=3, stream=True))
    assert [chunk.choices[0].text for chunk in chunks] == [" 0", " 1", " 2"]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "length"]
    assert [chunk.usage for chunk in chunks] == [None] * 3
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_conversation(site: Site):
    with site.client() as client:
        answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_completion_tokens=3)
    message = answer.choices[0].message
    assert (message.role, message.content, answer.choices[0].finish_reason) == ("assistant", " 0 1 2", "length")
    assert answer.object == "chat.completion"
    prompt = site.engine.prompts[0]
    assert card().tokenizer.decode(prompt.tokens) == "User: hello\n\nAssistant:"


def test_a_streamed_conversation_counts_its_tokens_when_asked(site: Site):
    with site.client() as client:
        chunks = list(
            client.chat.completions.create(
                model=MODEL, messages=HELLO, max_tokens=2, stream=True, stream_options={"include_usage": True}
            )
        )
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert [(delta.role, delta.content) for delta in deltas] == [("assistant", " 0"), (None, " 1")]
    usage = chunks[-1].usage
    assert chunks[-1].choices == [] and usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(site.engine.prompts[0].tokens), 2)


def test_events_end_with_done(site: Site):
    body = {"model": MODEL, "prompt": "a", "max_tokens": 1, "stream": True}
    answer = patient.post(f"{site.url}/v1/completions", json=body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    first, done, rest = answer.text.split("\n\n")
    assert first.startswith('data: {"id": "cmpl-') and (done, rest) == ("data: [DONE]", "")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_several_prompts_are_several_choices(site: Site, stream: bool):
    with site.client() as client:
        answer = client.completions.create(model=MODEL, prompt=["a", "bc", "def"], max_tokens=2, stream=stream)
        chunks = list(answer) if isinstance(answer, openai.Stream) else [answer]
    texts = {index: "" for index in range(3)}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: " 0 1", 1: " 0 1", 2: " 0 1"}
    assert sorted(len(prompt.tokens) for prompt in site.engine.prompts) == [1, 2, 3]
    assert len({prompt.id for prompt in site.engine.prompts}) == 3


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        pytest.param([7, 8, 9], [(7, 8, 9)], id="tokens"),
        pytest.param([[7, 8], [9]], [(7, 8), (9,)], id="lists of tokens"),
    ],
)
def test_prompts_may_be_tokens(site: Site, prompt: list[int], tokens: list[tuple[int, ...]]):
    with site.client() as client:
        client.completions.create(model=MODEL, prompt=prompt)
    assert sorted(tuple(prompt.tokens) for prompt in site.engine.prompts) == tokens


def test_what_was_asked_reaches_the_engine(site: Site):
    with site.client() as client:
        client.completions.create(
            model=MODEL, prompt="a", max_tokens=5, temperature=0, top_p=0.5, seed=7, stop=["x", "y"], user="team"
        )
        client.completions.create(model=MODEL, prompt="a", stop="x")
        client.chat.completions.create(model=MODEL, messages=HELLO)
    first, second, chat = site.engine.prompts
    assert first.sampling == Sampling(max_tokens=5, temperature=0, top_p=0.5, seed=7, stop=("x", "y"))
    assert second.sampling == Sampling(max_tokens=16, stop=("x",))
    assert chat.sampling == Sampling(max_tokens=MAX_MODEL_LEN - len(chat.tokens))
    assert (first.tenant, second.tenant) == ("team", "")


def test_unknown_fields_are_ignored_and_neutral_ones_taken(site: Site):
    neutral: dict[str, object] = {
        "n": 1,
        "echo": False,
        "logprobs": None,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "made_up": [1],
    }
    answer = patient.post(f"{site.url}/v1/completions", json={"model": MODEL, "prompt": "a"} | neutral)
    assert answer.status_code == 200


def test_messages_may_come_in_parts(site: Site):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    patient.post(f"{site.url}/v1/chat/completions", json={"model": MODEL, "messages": messages, "max_tokens": 1})
    text = card().tokenizer.decode(site.engine.prompts[0].tokens)
    assert text == "System: be brief\n\nUser: one\ntwo\n\nAssistant:"


def test_the_models_are_listed(site: Site):
    with site.client() as client:
        listed = client.models.list().data
        assert [model.id for model in listed] == [MODEL]
        assert client.models.retrieve(MODEL) == listed[0]
        with pytest.raises(openai.NotFoundError, match=r"toy/countr.*did you mean 'toy/counter'"):
            client.models.retrieve("toy/countr")


def test_health_says_that_it_lives_and_ready_whether_it_can_work(site: Site):
    assert patient.get(f"{site.url}/ready").json() == {"ready": True, "reason": None}
    site.engine.why_not = "the decoder is starting"
    answer = patient.get(f"{site.url}/ready")
    site.engine.why_not = None
    assert (answer.status_code, answer.json()["reason"]) == (503, "the decoder is starting")
    assert patient.get(f"{site.url}/health").status_code == 200
