import asyncio
import time

from geotrain.demo.load import Answers, send
from geotrain.prefill.request import Request
from tests.serving.http.toy import MODEL, Toy, served


def sent(url: str, lengths: list[int]) -> Answers:
    """All at once."""
    told: list[int] = []
    requests = [Request(id=number, arrival_s=0.0, input_tokens=length) for number, length in enumerate(lengths)]
    answers = asyncio.run(send(url, MODEL, requests, time.monotonic(), lambda so_far: told.append(so_far.number)))
    assert told == list(range(1, len(lengths) + 1))
    return answers


def test_every_prompt_has_as_many_tokens_as_its_request():
    with served(Toy()) as site:
        answers = sent(f"{site.url}/v1", [1, 30, 7])
        assert sorted(len(prompt.tokens) for prompt in site.engine.prompts) == [1, 7, 30]
    assert (len(answers.ttft_s), answers.rejected, answers.failures) == (3, 0, [])
    assert all(ttft_s > 0 for ttft_s in answers.ttft_s)


def test_who_is_turned_away_is_counted():
    with served(Toy(capacity=0)) as site:
        answers = sent(f"{site.url}/v1", [1, 2])
    assert (answers.ttft_s, answers.rejected, answers.failures) == ([], 2, [])


def test_a_failure_is_no_first_token():
    with served(Toy(fails_at=1)) as site:
        answers = sent(f"{site.url}/v1", [5])
    assert (answers.ttft_s, answers.rejected, len(answers.failures)) == ([], 0, 1)
