"""Workers, decoder and engine together, as real processes: the right tokens, and an end for every request."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from geotrain.errors import RunError
from geotrain.prefill.predictor import PrefillTime
from geotrain.serving.contract import Draining
from tests.serving import live
from tests.serving.prefilling import prompt as ids_of
from tests.training.plans import plan

LENGTHS = (1, 2, 63, 64, 65, 700, 2000)
# A service has half a dozen processes, and each of them torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


def expected(directory: Path, lengths: tuple[int, ...]) -> list[list[int]]:
    """What transformers says follows."""
    reference: Any = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
    found = []
    for length in lengths:
        ids = torch.tensor([ids_of(length)])
        out = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=8,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        found.append(out[0, length:].tolist())
    return found


@pytest.mark.parametrize(("degree", "chunk"), [(1, 2048), (2, 100), (4, 33)])
def test_tokens_are_those_of_transformers(tmp_path: Path, degree: int, chunk: int):
    live.model(tmp_path / live.NAME)
    decided = live.small_plan() if degree < 4 else plan(("east",) * 4, gpus_per_node=4)

    async def story() -> list[list[int | None]]:
        async with live.running(tmp_path, decided=decided, degree=degree, chunk=chunk) as made:
            asked = [live.prompt(ids_of(length)) for length in LENGTHS]
            return [[piece.token for piece in pieces] for pieces in await live.answers(made, asked)]

    assert asyncio.run(story()) == expected(tmp_path / live.NAME, LENGTHS)


def test_a_prompt_too_long_for_one_slot_goes_through_the_layers_of_two(tmp_path: Path):
    """2,000 tokens in chunks of 100 should take a slot 20 s, two of them 10.5 s: each has all layers and works on half.

    The SLO is 15 s; really it takes no time.
    """
    slow = PrefillTime(per_token_s=0.01)

    async def story() -> list[int | None]:
        async with live.running(tmp_path, degree=1, chunk=100, slo_s=15.0, times=slow) as made:
            return [piece.token for piece in await live.answer(made, live.prompt(ids_of(2000)))]

    assert [asyncio.run(story())] == expected(tmp_path / live.NAME, (2000,))
    pieces = [json.loads(line) for line in (tmp_path / "prefill.jsonl").read_text().splitlines()]
    assert len({piece["slot"] for piece in pieces if piece["what"] == "work"}) == 2


def test_times_are_measured_when_nobody_gives_them(tmp_path: Path):
    async def story() -> int:
        async with live.running(tmp_path, times=None) as made:
            return len(await live.answer(made, live.prompt(ids_of(40))))

    assert asyncio.run(story()) == 8


def test_a_service_that_is_about_to_end_finishes_what_it_has(tmp_path: Path):
    async def story() -> int:
        async with live.running(tmp_path) as made:
            under_way = asyncio.create_task(live.answer(made, live.prompt(ids_of(40), max_tokens=200)))
            await asyncio.sleep(0)
            assert made.requests.under_way == 1
            made.reception.drain()
            assert made.reception.ready() is not None
            with pytest.raises(Draining):
                await live.answer(made, live.prompt(ids_of(41)))
            await made.requests.idle(30.0)
            return len(await under_way)

    assert asyncio.run(story()) == 200


def test_workers_that_do_not_come_are_an_error(tmp_path: Path):
    live.model(tmp_path / live.NAME)
    (tmp_path / live.NAME / "model.safetensors").write_bytes(b"torn")

    async def story() -> None:
        async with live.running(tmp_path):
            pass

    with pytest.raises(RunError, match="cannot start, and has said why"):
        asyncio.run(story())
