"""The decoder's side of the hand-over: whatever order things come in, an answer begins once, and nothing is left."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.model import Part
from geotrain.serving.contract import Sampling
from geotrain.serving.decoder import Decoding
from geotrain.serving.messages import DecodeStart, Error, FirstToken, Kv, Message, Tensor, Tokens
from geotrain.serving.tensors import pack
from tests.serving.prefilling import decoder, shards, write
from tests.serving.prefilling import prompt as ids_of

NAME, IDS = "r", ids_of(20)
ANSWER = 3


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Part:
    return write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Kv, bytearray]]:
    """Keys and values of a prompt, by layer."""
    import torch

    from geotrain.serving.shard import Chunk

    directory = tmp_path_factory.mktemp("model")
    write(directory)
    (shard,) = shards(directory, 1)
    shard.start(NAME, len(IDS))
    layers = list(shard.run([Chunk(request=NAME, x=torch.tensor(IDS), position=0)]))
    packed = [pack(shard.kv(NAME, layer, 0, len(IDS))) for layer in layers]
    return [
        (Kv(request=NAME, layer=layer, position=0, tensor=tensor), bytearray(payload))
        for layer, (tensor, payload) in zip(layers, packed, strict=True)
    ]


async def told(part: Part, story: Callable[[Decoding], Awaitable[None]], lease_s: float = 60.0) -> list[Message]:
    """What a decoder says to serve; in the end it holds nothing."""
    said: list[Message] = []
    decoding = Decoding(decoder(part), lease_s=lease_s, tell=said.append)
    running = asyncio.create_task(decoding.run())
    await story(decoding)
    async with asyncio.timeout(20.0):
        while decoding.held_tokens:  # noqa: ASYNC110 -- there is no event: it happens elsewhere
            await asyncio.sleep(0.001)
    assert decoding._early.held_bytes == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return said


def start(decoding: Decoding) -> None:
    about = Tensor(dtype="int64", shape=(len(IDS),))
    decoding.start(DecodeStart(request=NAME, sampling=Sampling(max_tokens=ANSWER, temperature=0.0), tensor=about), IDS)


@settings(max_examples=30)
@given(data=st.data())
def test_in_any_order(part: Part, handed: list[tuple[Kv, bytearray]], data: st.DataObject):
    events = ["start", "first", "first again", *range(len(handed))]
    order = data.draw(st.permutations(events))
    pauses = data.draw(st.sets(st.sampled_from(events)))

    async def story(decoding: Decoding) -> None:
        for event in order:
            if isinstance(event, int):
                decoding.receive(*handed[event])
            elif event == "start":
                start(decoding)
            else:
                decoding.first(FirstToken(request=NAME, token=7))
            if event in pauses:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)

    tokens = [
        one for message in asyncio.run(told(part, story)) if isinstance(message, Tokens) for one in message.tokens
    ]
    assert (len(tokens), tokens[0].token, tokens[-1].finish) == (ANSWER, 7, "length")


@settings(max_examples=30)
@given(data=st.data())
def test_who_is_cancelled_says_no_more_and_leaves_nothing(
    part: Part, handed: list[tuple[Kv, bytearray]], data: st.DataObject
):
    events = ["cancel", "first", *range(len(handed))]
    order = data.draw(st.permutations(events))
    pauses = data.draw(st.sets(st.sampled_from(["start", *events])))

    async def story(decoding: Decoding) -> None:
        start(decoding)
        for event in ["start", *order]:
            if isinstance(event, int):
                decoding.receive(*handed[event])
            elif event == "cancel":
                decoding.cancel([NAME])
            elif event == "first":
                decoding.first(FirstToken(request=NAME, token=7))
            if event in pauses:
                await asyncio.sleep(0.001)

    assert not [message for message in asyncio.run(told(part, story)) if isinstance(message, Error)]


def test_what_does_not_come_in_time_is_given_up(part: Part, handed: list[tuple[Kv, bytearray]]):
    async def story(decoding: Decoding) -> None:
        start(decoding)
        decoding.first(FirstToken(request=NAME, token=7))
        for kv, payload in handed[1:]:
            decoding.receive(kv, payload)
        await asyncio.sleep(0)

    (error,) = asyncio.run(told(part, story, lease_s=0.05))
    assert error == Error(request=NAME, message="its keys and values did not come within 0.05 s")
