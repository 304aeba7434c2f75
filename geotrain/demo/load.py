"""A trace of requests sent to a service with OpenAI's own client, as a real one's clients would."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from string import ascii_letters

import openai

from geotrain.prefill.request import Request

_ANSWER_TOKENS = 2
_PATIENCE_S = 60.0


@dataclass
class Answers:
    """How the requests ended."""

    ttft_s: list[float] = field(default_factory=list)
    rejected: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Of them so far."""
        return len(self.ttft_s) + self.rejected + len(self.failures)


async def send(
    url: str, model: str, requests: Sequence[Request], zero_s: float, tell: Callable[[Answers], None]
) -> Answers:
    """Each at its time after `zero_s`, a letter for each token; until the last answer is over."""
    answers, luck = Answers(), random.Random(0)

    async def ask(client: openai.AsyncOpenAI, prompt: str) -> None:
        start_s = time.monotonic()
        try:
            stream = await client.completions.create(
                model=model, prompt=prompt, max_tokens=_ANSWER_TOKENS, temperature=0.0, stream=True
            )
            first_s = None
            async for _ in stream:
                first_s = first_s or time.monotonic()
            answers.ttft_s.append((first_s or time.monotonic()) - start_s)
        except openai.RateLimitError:
            answers.rejected += 1
        except openai.OpenAIError as error:
            answers.failures.append(f"{type(error).__name__}: {error}")
        tell(answers)

    async with (
        openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=_PATIENCE_S) as client,
        asyncio.TaskGroup() as group,
    ):
        for request in requests:
            prompt = "".join(luck.choices(ascii_letters, k=request.input_tokens))
            await asyncio.sleep(max(0.0, zero_s + request.arrival_s - time.monotonic()))
            group.create_task(ask(client, prompt))
    return answers
