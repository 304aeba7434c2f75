"""What serve and a prefill worker do with a bridge."""

import asyncio
import functools
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch

from geotrain.model import Config, Part
from geotrain.model.generate import choice
from geotrain.serving.contract import Piece, Sampling
from geotrain.serving.messages import DecodeStart, Error, FirstToken, Kv, Message, Token, Tokens
from geotrain.serving.shard import Chunk, Shard
from geotrain.serving.tensors import pack
from geotrain.serving.vllm.bridge import Bridge
from tests.model.tiny import config, tokens
from tests.serving.prefilling import WORDS, decode, decoder, hop, prefill, write

SHAPE = config(
    num_hidden_layers=4,
    hidden_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    vocab_size=WORDS.vocab_size,
    max_position_embeddings=1024,
)


def write_model(directory: Path) -> Part:
    """With a tokenizer, as vLLM wants it."""
    part = write(directory, SHAPE)
    (directory / "tokenizer.json").write_text(WORDS.json)
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return part


def prompt(length: int, seed: int = 0) -> list[int]:
    ids: list[int] = tokens(SHAPE, length, seed=1000 * seed + length).tolist()
    return ids


def ours(part: Part, ids: list[int], sampling: Sampling, shape: Config = SHAPE) -> list[Piece]:
    """What the built-in decoder makes of it."""
    built_in = decoder(part, stop_ids=[*shape.stop_ids, WORDS.end_id])
    return decode(built_in, prefill([Shard(part)], {"it": ids}, sampling, built_in))["it"]


def start(bridge: Bridge, request: str, ids: list[int], sampling: Sampling) -> None:
    about, _ = pack(torch.tensor(ids))
    bridge.start(DecodeStart(request=request, sampling=sampling, tensor=about), ids)


def prefilled(
    part: Part, request: str, ids: Sequence[int], *, chunk: int = 100
) -> tuple[list[tuple[Kv, bytearray]], FirstToken]:
    """What a worker sends: keys and values chunk by chunk and layer by layer, and the likeliest first token."""
    shard = Shard(part)
    shard.start(request, len(ids))
    sent: list[tuple[Kv, bytearray]] = []

    def push(request: str, layer: int, position: int, kv: torch.Tensor) -> None:
        about, payload = pack(kv)
        sent.append((Kv(request=request, layer=layer, position=position, tensor=about), bytearray(payload)))

    for at in range(0, len(ids), chunk):
        x, is_last = torch.tensor(ids[at : at + chunk]), at + chunk >= len(ids)
        _, ended = hop(shard, [Chunk(request=request, x=x, position=at, is_last=is_last)], push)
    first = choice(ended[request], temperature=0.0, top_p=1.0, seed=None, number=0)
    return sent, FirstToken(request=request, token=first)


def hand(bridge: Bridge, part: Part, request: str, ids: list[int], sampling: Sampling) -> None:
    start(bridge, request, ids, sampling)
    sent, first = prefilled(part, request, ids)
    for kv, payload in sent:
        bridge.receive(kv, payload)
    bridge.first(first)


class Heard:
    """What a bridge has told."""

    def __init__(self) -> None:
        self.tokens: defaultdict[str, list[Token]] = defaultdict(list)
        self.errors: dict[str, str] = {}
        self._news = asyncio.Event()

    def tell(self, message: Message) -> None:
        if isinstance(message, Tokens):
            for token in message.tokens:
                assert not self.is_over(token.request), "told after the end"
                self.tokens[token.request].append(token)
        else:
            assert isinstance(message, Error) and message.request is not None
            assert not self.is_over(message.request), "told after the end"
            self.errors[message.request] = message.message
        self._news.set()

    def is_over(self, request: str) -> bool:
        told = self.tokens[request]
        return request in self.errors or (bool(told) and told[-1].finish is not None)

    def ids(self, request: str) -> list[int]:
        assert request not in self.errors, self.errors[request]
        return [token.token for token in self.tokens[request] if token.token is not None]

    def pieces(self, request: str) -> list[Piece]:
        return [Piece(text=one.text, token=one.token, finish=one.finish) for one in self.tokens[request]]

    async def until(self, requests: Sequence[str], *, tokens: int | None = None) -> None:
        """All are over, or have so many tokens."""
        while not all(self.is_over(one) or (tokens and len(self.tokens[one]) >= tokens) for one in requests):
            self._news.clear()
            await self._news.wait()


def files(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.exists() else []


def on_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is played on an event loop."""

    @functools.wraps(story)
    def test(*args: Any, **kwargs: Any) -> None:
        asyncio.run(story(*args, **kwargs))

    return test


@asynccontextmanager
async def running(bridge: Bridge) -> AsyncIterator[Bridge]:
    """`run` beside a test, to its end."""
    task = asyncio.create_task(bridge.run())
    await asyncio.sleep(0)
    try:
        yield bridge
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
