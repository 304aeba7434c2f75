"""The decoder's side of the hand-over: whatever order things come in, an answer begins once, and nothing is left."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.model import Part
from geotrain.serving.contract import Sampling
from geotrain.serving.decoder import Decoding
from geotrain.serving.messages import DecodeStart, Error, FirstToken, Kv, Message, Tensor, Tokens
from geotrain.serving.shard import Chunk
from geotrain.serving.tensors import pack
from tests.serving.prefilling import SHAPE, decoder, shards, write
from tests.serving.prefilling import prompt as ids_of

NAME, IDS = "r", ids_of(20)
ANSWER = 3


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Part:
    return write(tmp_path_factory.mktemp("model"))


@dataclass(repr=False)
class Handed:
    """Keys and values of a prompt."""

    layers: list[tuple[Kv, bytearray]]


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Handed:
    directory = tmp_path_factory.mktemp("model")
    write(directory)
    (shard,) = shards(directory, 1)
    shard.start(NAME, len(IDS))
    layers = list(shard.run([Chunk(request=NAME, x=torch.tensor(IDS), position=0)]))
    packed = [pack(shard.kv(NAME, layer, 0, len(IDS))) for layer in layers]
    return Handed(
        [
            (Kv(request=NAME, layer=layer, position=0, tensor=tensor), bytearray(payload))
            for layer, (tensor, payload) in zip(layers, packed, strict=True)
        ]
    )


def is_end(message: Message) -> bool:
    return isinstance(message, Error) or (isinstance(message, Tokens) and message.tokens[-1].finish is not None)


async def told(
    part: Part, story: Callable[[Decoding], Awaitable[None]], *, ends: bool = True, lease_s: float = 60.0
) -> list[Message]:
    """What a decoder says to serve; in the end it holds nothing."""
    said: list[Message] = []
    decoding = Decoding(decoder(part), lease_s=lease_s, tell=said.append)
    running = asyncio.create_task(decoding.run())
    await story(decoding)
    async with asyncio.timeout(20.0):
        while decoding.held_tokens or (ends and not any(map(is_end, said))):  # noqa: ASYNC110 -- there is no event: it happens elsewhere
            await asyncio.sleep(0.001)
    assert decoding._early.held_bytes == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return said


def start(decoding: Decoding) -> None:
    about = Tensor(dtype="int64", shape=(len(IDS),))
    decoding.start(DecodeStart(request=NAME, sampling=Sampling(max_tokens=ANSWER, temperature=0.0), tensor=about), IDS)


def orders(*events: str) -> st.SearchStrategy[list[tuple[str, bool]]]:
    """Any order of these and of the layers' keys and values, with pauses after some."""
    every = st.permutations([*events, *map(str, range(SHAPE.num_hidden_layers))])
    return every.flatmap(lambda order: st.tuples(*(st.tuples(st.just(event), st.booleans()) for event in order))).map(
        list
    )


async def play(decoding: Decoding, order: list[tuple[str, bool]], handed: Handed) -> None:
    for event, pauses in order:
        if event.isdecimal():
            decoding.receive(*handed.layers[int(event)])
        elif event == "start":
            start(decoding)
        elif event == "cancel":
            decoding.cancel([NAME])
        else:
            decoding.first(FirstToken(request=NAME, token=7))
        await asyncio.sleep(0.001 if pauses else 0)


@settings(max_examples=30)
@given(order=orders("start", "first", "first again"))
def test_in_any_order(part: Part, handed: Handed, order: list[tuple[str, bool]]):
    said = asyncio.run(told(part, lambda decoding: play(decoding, order, handed)))
    tokens = [one for message in said if isinstance(message, Tokens) for one in message.tokens]
    assert (len(tokens), tokens[0].token, tokens[-1].finish) == (ANSWER, 7, "length")


@settings(max_examples=30)
@given(order=orders("cancel", "first"))
def test_who_is_cancelled_leaves_nothing(part: Part, handed: Handed, order: list[tuple[str, bool]]):
    said = asyncio.run(told(part, lambda decoding: play(decoding, [("start", False), *order], handed), ends=False))
    assert not [message for message in said if isinstance(message, Error)]


def test_what_does_not_come_in_time_is_given_up(part: Part, handed: Handed):
    async def story(decoding: Decoding) -> None:
        start(decoding)
        decoding.first(FirstToken(request=NAME, token=7))
        for kv, payload in handed.layers[1:]:
            decoding.receive(kv, payload)
        await asyncio.sleep(0)

    (error,) = asyncio.run(told(part, story, lease_s=0.05))
    assert error == Error(request=NAME, message="its keys and values did not come within 0.05 s")
