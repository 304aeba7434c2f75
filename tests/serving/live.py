"""A real service in a test: worker and decoder processes, the engine in this one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from geotrain.files import write_text
from geotrain.model import Config
from geotrain.plan import Plan
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.settings import Settings
from geotrain.serving.contract import Piece, Prompt, Sampling
from geotrain.serving.journal import Journal
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard
from geotrain.serving.service import Service, Terms, service
from geotrain.serving.site import site
from tests.serving.prefilling import SHAPE, WORDS, write
from tests.training.plans import plan

NAME = "tiny"
QUICK = PrefillTime(fixed_s=0.002, per_token_s=1e-5)


def small_plan(**choices: Any) -> Plan:
    """Two data centers, two pipelines: four slots."""
    return plan(("east", "east", "south", "south"), gpus_per_node=4, **choices)


def model(directory: Path, shape: Config = SHAPE) -> Path:
    """With its tokenizer."""
    write(directory, shape)
    write_text(directory / "tokenizer.json", WORDS.json)
    return directory


@asynccontextmanager
async def running(
    directory: Path,
    *,
    decided: Plan | None = None,
    degree: int | None = None,
    chunk: int = 2048,
    slo_s: float = 60.0,
    dc: str | None = None,
    times: PrefillTime | None = QUICK,
    **terms: Any,
) -> AsyncIterator[Service]:
    """Ready to take requests."""
    where = directory / NAME
    if not where.exists():
        model(where)
    config = Config.load(where / "config.json")
    settings = Settings(slo_s=slo_s, degree=degree, chunk_tokens=chunk, batch_tokens=min(chunk, 1024), guard_s=0.001)
    here = site(decided or small_plan(), config.shape(NAME), settings, dc=dc)
    card = ModelCard.load(where, name=NAME, created=0, max_model_len=2100, vocab_size=config.vocab_size)
    decided_terms = Terms(
        model=where,
        windows=directory / "windows",
        times=None if times is None else dict.fromkeys(here.gpus, times),
        **{"start_s": 60.0, **terms},
    )
    journal = Journal(directory / "prefill.jsonl")
    try:
        async with service(
            here, card, decided_terms, metrics=Metrics(), journal=journal, say=lambda words: None
        ) as made:
            await made.started()
            yield made
    finally:
        journal.close()


def prompt(ids: Sequence[int], *, name: str = "", max_tokens: int = 8, **sampling: Any) -> Prompt:
    """Greedy if nothing else is said."""
    return Prompt(
        id=name or f"p-{len(ids)}",
        model=NAME,
        tokens=tuple(ids),
        sampling=Sampling(max_tokens=max_tokens, **{"temperature": 0.0, **sampling}),
    )


async def answer(made: Service, asked: Prompt) -> list[Piece]:
    """All of it."""
    return [piece async for piece in made.reception.submit(asked)]


async def answers(made: Service, asked: Sequence[Prompt]) -> list[list[Piece]]:
    """All at once."""
    return await asyncio.gather(*(answer(made, one) for one in asked))
