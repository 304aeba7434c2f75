"""Metrics tell when tokens came, not when somebody read them."""

import asyncio
from collections.abc import AsyncGenerator

from geotrain.serving.contract import Piece, Prompt, Sampling
from geotrain.serving.http.access_log import Entry
from geotrain.serving.http.generation import Call, generate
from geotrain.serving.metrics import Metrics
from tests.serving.http.toy import MODEL, Toy

ARRIVAL_S = 100.0
MADE_S = {"a": (101.0, 101.25, 101.5), "b": (102.0, 102.125)}


class Stamped(Toy):
    """An engine whose tokens came at known times."""

    async def submit(self, prompt: Prompt) -> AsyncGenerator[Piece, None]:
        for made_s in MADE_S[prompt.id]:
            yield Piece(text="x", token=1, finish="stop" if made_s == MADE_S[prompt.id][-1] else None, made_s=made_s)


def test_prompts_of_one_request_are_each_measured_by_their_own_tokens():
    metrics, entry = Metrics(), Entry(id="r", method="POST", path="/v1/completions", arrival_s=ARRIVAL_S)

    async def story() -> list[int]:
        prompts = [Prompt(id=name, model=MODEL, tokens=(1,), sampling=Sampling(max_tokens=3)) for name in MADE_S]
        calls = [Call(Stamped(), prompt, entry=entry, metrics=metrics) for prompt in prompts]
        return [index async for index, _ in generate(calls)]

    assert asyncio.run(story()) == [0, 0, 0, 1, 1]
    text = metrics.text().decode()
    for name, number, seconds in (
        ("vllm:time_to_first_token", 2, 1.0 + 2.0),
        ("vllm:inter_token_latency", 3, 0.25 + 0.25 + 0.125),
        ("vllm:e2e_request_latency", 2, 1.5 + 2.125),
    ):
        assert f'{name}_seconds_count{{model_name="{MODEL}"}} {number}.0\n' in text
        assert f'{name}_seconds_sum{{model_name="{MODEL}"}} {seconds}\n' in text
