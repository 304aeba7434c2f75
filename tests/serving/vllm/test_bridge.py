import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from geotrain.errors import RunError
from geotrain.model import Config, Part
from geotrain.serving.contract import Sampling
from geotrain.serving.vllm.bridge import Bridge
from geotrain.serving.vllm.server import transfer_config
from tests.model.tiny import filled
from tests.serving.prefilling import WORDS, ids_of
from tests.serving.vllm.handing import SHAPE, Heard, files, hand, on_loop, ours, prefilled, prompt, running, start
from tests.serving.vllm.stand_in import StandIn

GREEDY = Sampling(max_tokens=8, temperature=0.0)


@pytest.fixture(scope="module")
def part() -> Part:
    return filled(SHAPE)


class Scene:
    """A bridge, what stands in for vLLM, and what serve hears."""

    def __init__(self, directory: Path, part: Part) -> None:
        self.directory, self.part = directory, part
        self.vllm, self.heard = StandIn(directory, part), Heard()
        self.bridge: Bridge

    @asynccontextmanager
    async def open(self, *, lease_s: float = 20.0, config: Config = SHAPE, url: str = "") -> AsyncIterator[None]:
        tell = self.heard.tell
        async with self.vllm.serving() as here:
            self.bridge = Bridge(
                self.directory, url or f"{here}/v1", "tiny", config, WORDS, lease_s=lease_s, tell=tell, key="k"
            )
            async with running(self.bridge):
                yield
        assert files(self.directory) == []

    def hand(self, request: str, ids: list[int], sampling: Sampling = GREEDY) -> None:
        hand(self.bridge, self.part, request, ids, sampling)


@pytest.fixture
def scene(tmp_path: Path, part: Part) -> Scene:
    return Scene(tmp_path / "kv", part)


async def until(is_so: Callable[[], Any]) -> None:
    while not is_so():  # noqa: ASYNC110 -- there is no event: it happens elsewhere
        await asyncio.sleep(0.01)


def expected(part: Part, ids: list[int], number: int = 8) -> list[int]:
    return ids_of(ours(part, ids, Sampling(max_tokens=number, temperature=0.0)))


@on_loop
async def test_answers_are_those_of_our_own_decoder(scene: Scene):
    lengths = {str(length): length for length in (1, 2, 63, 64, 100, 333)}
    async with scene.open():
        for name, length in lengths.items():
            scene.hand(name, prompt(length))
        await scene.heard.until(list(lengths))
        assert files(scene.directory) == []
    for name, length in lengths.items():
        assert scene.heard.pieces(name) == ours(scene.part, prompt(length), GREEDY)
        assert prompt(length) + scene.heard.ids(name)[:1] in [body["prompt"] for body in scene.vllm.asked]


@on_loop
async def test_what_comes_early_again_or_in_another_order(scene: Scene):
    """Each layer's chunks are in order, that is all; some come before the start, some twice."""
    dice = random.Random(1)
    ids = prompt(250)
    async with scene.open():
        for name in "abcdefgh":
            sent, first = prefilled(scene.part, name, ids, chunk=70)
            order = sorted(sent, key=lambda one: (one[0].position // 70 + dice.random() * 0.9, one[0].layer))
            told: list[Callable[[], None]] = [partial(scene.bridge.receive, *one) for one in order]
            told.insert(dice.randrange(len(told) + 1), partial(scene.bridge.first, first))
            again = dice.choice(told)
            told.insert(told.index(again) + 1, again)
            told.insert(dice.randrange(len(told) + 1), partial(start, scene.bridge, name, ids, GREEDY))
            for tell in told:
                tell()
        await scene.heard.until("abcdefgh")
    assert {name: scene.heard.ids(name) for name in "abcdefgh"} == dict.fromkeys("abcdefgh", expected(scene.part, ids))


@on_loop
async def test_it_ends_by_token_string_and_number(scene: Scene):
    free = expected(scene.part, prompt(9), 30)
    ends = SHAPE.model_copy(update={"eos_token_id": free[12]})
    samplings = {
        "token": Sampling(max_tokens=30, temperature=0.0),
        "number": Sampling(max_tokens=5, temperature=0.0),
        "one": Sampling(max_tokens=1, temperature=0.0),
        "string": Sampling(max_tokens=30, temperature=0.0, stop=(WORDS.decode(free[4:7]),)),
    }
    async with scene.open(config=ends):
        for name, sampling in samplings.items():
            scene.hand(name, prompt(9), sampling)
        await scene.heard.until(list(samplings))
        assert files(scene.directory) == []
    for name, sampling in samplings.items():
        assert scene.heard.pieces(name) == ours(scene.part, prompt(9), sampling, ends)
    assert {name: scene.heard.tokens[name][-1].finish for name in samplings} == {
        "token": "stop",
        "number": "length",
        "one": "length",
        "string": "stop",
    }
    assert [body["max_tokens"] for body in scene.vllm.asked] == [29, 4, 29], "one token needs no vLLM"


@on_loop
async def test_nothing_is_left_to_anybody_else_s_defaults(scene: Scene):
    sampling = Sampling(max_tokens=3, temperature=0.7, top_p=0.9, seed=4, stop=("x",))
    async with scene.open():
        scene.vllm.refuses = "no"
        scene.hand("a", prompt(3), sampling)
        await scene.heard.until("a")
    (body,) = scene.vllm.asked
    assert len(body.pop("kv_transfer_params")["geotrain"]) == 32
    assert body == {
        "model": "tiny",
        "prompt": [*prompt(3), scene.heard.tokens["a"][0].token],
        "max_tokens": 2,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": 4,
        "stop_token_ids": [WORDS.end_id],
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }


@on_loop
async def test_cancelled_before_all_has_come(scene: Scene):
    async with scene.open():
        sent, first = prefilled(scene.part, "a", prompt(200))
        start(scene.bridge, "a", prompt(200), GREEDY)
        scene.bridge.receive(*sent[0])
        assert len(files(scene.directory)) == 1
        scene.bridge.cancel(["a", "stranger"])
        assert files(scene.directory) == []
        for late in sent:
            scene.bridge.receive(*late)
        scene.bridge.first(first)
        assert files(scene.directory) == []
    assert (scene.heard.tokens, scene.heard.errors, scene.vllm.asked) == ({}, {}, [])


@pytest.mark.parametrize("holds_at", [0, 3], ids=["before vLLM's first token", "between tokens"])
@on_loop
async def test_cancelled_while_vllm_answers(scene: Scene, holds_at: int):
    scene.vllm.holds_at = holds_at
    async with scene.open():
        scene.hand("a", prompt(9))
        await scene.heard.until("a", tokens=holds_at + 1)
        await until(lambda: scene.vllm.asked)
        assert len(files(scene.directory)) == (holds_at == 0), "kept until it was loaded"
        scene.bridge.cancel(["a"])
        assert files(scene.directory) == []
        await until(lambda: scene.vllm.left)
    assert scene.heard.ids("a") == expected(scene.part, prompt(9))[: holds_at + 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"refuses": "too long"}, "vLLM has refused it with 400: too long", id="refused"),
        pytest.param({"breaks_at": 0}, "vLLM is lost: ", id="killed before its first token"),
        pytest.param({"breaks_at": 2}, "vLLM is lost: ", id="killed between tokens"),
        pytest.param({"says": "{"}, "vLLM does not tell its tokens as version 0.32 does: {", id="garbage"),
        pytest.param({"says": "[1]"}, "vLLM does not tell its tokens as", id="a list"),
        pytest.param({"says": '{"choices": [{"text": "a"}]}'}, "vLLM does not tell its tokens as", id="only text"),
        pytest.param(
            {"says": '{"error": {"message": "no"}}'}, 'vLLM has failed: {"message": "no"}', id="its own error"
        ),
        pytest.param({"says": '{"choices": []}'}, "vLLM has ended the answer after 1 of 8 tokens", id="no tokens"),
    ],
)
@on_loop
async def test_whatever_vllm_does_ends_in_an_error(scene: Scene, change: dict[str, Any], words: str):
    vars(scene.vllm).update(change)
    async with scene.open():
        for name in "abc":
            scene.hand(name, prompt(9))
        await scene.heard.until("abc")
        assert files(scene.directory) == []
    assert all(scene.heard.errors[name].startswith(words) for name in "abc")


@on_loop
async def test_they_meet_first(scene: Scene):
    async with scene.open():
        assert await scene.bridge.room_tokens() == 16 * 100
        scene.vllm.model = "huge"
        with pytest.raises(RunError, match=r"vLLM does not have the model 'tiny', but \['huge'\]"):
            await scene.bridge.room_tokens()
        scene.vllm.room = "{}"
        with pytest.raises(RunError, match="vLLM does not tell its models and the size of its cache as version"):
            await scene.bridge.room_tokens()
        scene.vllm.refuses = "who are you?"
        with pytest.raises(RunError, match=r"vLLM does not say which models it has: 400: who are you\?"):
            await scene.bridge.room_tokens()


@on_loop
async def test_nobody_is_there(scene: Scene):
    async with scene.open(url="http://127.0.0.1:9"):
        with pytest.raises(RunError, match="vLLM is lost: All connection attempts failed"):
            await scene.bridge.room_tokens()
        scene.hand("a", prompt(9))
        await scene.heard.until("a")
    assert scene.heard.errors == {"a": "vLLM is lost: All connection attempts failed"}


@on_loop
async def test_vllm_falls_silent(scene: Scene):
    scene.vllm.holds_at = 2
    async with scene.open(lease_s=2.0):
        scene.hand("a", prompt(9))
        await scene.heard.until("a")
        await until(lambda: scene.vllm.left)
    assert scene.heard.errors == {"a": "vLLM has said nothing for 2 s"}


@on_loop
async def test_keys_and_values_that_never_come(scene: Scene):
    async with scene.open(lease_s=0.2):
        sent, first = prefilled(scene.part, "some", prompt(200))
        start(scene.bridge, "none", prompt(9), GREEDY)
        start(scene.bridge, "some", prompt(200), GREEDY)
        scene.bridge.receive(*sent[0])
        scene.bridge.first(first)
        await scene.heard.until(["none", "some"])
        assert files(scene.directory) == []
    words = "its keys and values did not come within 0.2 s"
    assert scene.heard.errors == {name: words for name in ("none", "some")}
    assert scene.heard.tokens == {"none": [], "some": []}


@on_loop
async def test_what_came_too_early_is_forgotten(scene: Scene):
    async with scene.open(lease_s=0.1):
        sent, first = prefilled(scene.part, "a", prompt(9))
        for one in sent:
            scene.bridge.receive(*one)
        scene.bridge.first(first)
        await asyncio.sleep(0.2)
        start(scene.bridge, "a", prompt(9), GREEDY)
        await scene.heard.until("a")
    assert scene.heard.errors == {"a": "its keys and values did not come within 0.1 s"}


@on_loop
async def test_the_lease_is_renewed_as_long_as_vllm_has_not_loaded(scene: Scene):
    scene.vllm.holds_at = 0
    async with scene.open(lease_s=10.0):
        scene.hand("a", prompt(9))
        (file,) = files(scene.directory)
        os.utime(file, (0, 0))
        await until(lambda: file.stat().st_mtime > 0)
        scene.bridge.cancel(["a"])


@on_loop
async def test_keys_and_values_of_another_model(scene: Scene):
    async with scene.open(config=SHAPE.model_copy(update={"num_key_value_heads": 1})):
        scene.hand("a", prompt(9))
        assert files(scene.directory) == []
    assert scene.heard.errors == {"a": "keys and values [2, 2, 9, 32] of layer 0 are of another model"}


@on_loop
async def test_a_vllm_without_the_connector_is_noticed(scene: Scene, caplog: pytest.LogCaptureFixture):
    scene.vllm.reads = False
    async with scene.open():
        for name in "ab":
            scene.hand(name, prompt(9))
        await scene.heard.until("ab")
    assert scene.heard.ids("a") == scene.heard.ids("b") == expected(scene.part, prompt(9)), "slower, but right"
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage() == (
        f"vLLM computes prompts again; start it with --kv-transfer-config '{transfer_config(scene.directory)}'"
    )


@on_loop
async def test_the_end_of_the_bridge_is_the_end_of_all(scene: Scene):
    scene.vllm.holds_at = 0
    async with scene.open():
        scene.hand("a", prompt(9))
        start(scene.bridge, "b", prompt(9), GREEDY)
        scene.bridge.receive(*prefilled(scene.part, "b", prompt(9))[0][0])
        await until(lambda: scene.vllm.asked)
        assert len(files(scene.directory)) == 2
    assert scene.heard.errors == {}, "whoever ends it knows"


@on_loop
async def test_an_answer_that_nobody_can_read_ends_too(scene: Scene):
    scene.vllm.says = '{"choices": [{"token_ids": [-7]}]}'
    async with scene.open():
        scene.hand("a", prompt(20))
        async with asyncio.timeout(10.0):
            await scene.heard.until(["a"])
        assert scene.heard.errors["a"] == "vLLM's answer cannot be passed on: OverflowError"
        assert scene.bridge.held_tokens == 0
