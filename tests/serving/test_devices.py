"""On which GPU everybody computes, and when that counts as done; with no GPU here, what torch is told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from geotrain.prefill.settings import Settings
from geotrain.serving import shard as shards
from geotrain.serving.gate import Gate
from geotrain.serving.journal import Journal
from geotrain.serving.messages import Measure, Measured, Message
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard
from geotrain.serving.prefilling import Prefilling
from geotrain.serving.service import Terms, service
from geotrain.serving.shard import Chunk, Shard, settle
from geotrain.serving.site import site
from geotrain.serving.staff import Staff
from tests.serving import live
from tests.serving.prefilling import SHAPE, write


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_worker_has_the_gpu_of_its_training_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Any):
    told = {}

    async def start(self: Staff, name: str, target: object, spec: Any) -> None:
        told[name] = spec.device

    monkeypatch.setattr(Staff, "start", start)
    where = live.model(tmp_path / live.NAME)
    card = ModelCard.load(where, name=live.NAME, created=0, max_model_len=2100, vocab_size=SHAPE.vocab_size)
    here = site(live.small_plan(), SHAPE.shape(live.NAME), Settings(degree=1), dc=None)
    terms = Terms(model=where, windows=tmp_path, device=device, decoder_device="cuda:7")

    async def story() -> None:
        made = service(here, card, terms, metrics=Metrics(), journal=Journal(None), say=lambda words: None)
        async with made as running:
            await running._start()

    asyncio.run(story())
    first, second = ("cpu", "cpu") if device == "cpu" else ("cuda:0", "cuda:1")
    assert told == {"east-0": first, "east-1": second, "south-0": first, "south-1": second, "decoder": "cuda:7"}


def test_only_a_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    settle(torch.device("cpu"))
    settle(torch.device("cuda", 3))
    assert waited == [torch.device("cuda", 3)]


def test_a_unit_is_over_when_its_device_has_done_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "model")
    settled: list[torch.device] = []
    monkeypatch.setattr(shards, "settle", settled.append)
    shard = Shard.load(tmp_path / "model")
    shard.start("a", 3)
    for number, _ in enumerate(shard.run([Chunk(request="a", x=torch.tensor([1, 2, 3]), position=0)])):
        assert settled == [torch.device("cpu")] * (number + 1)


def test_layers_in_half_precision_are_measured_too(tmp_path: Path):
    write(tmp_path / "model")
    shard = Shard.load(tmp_path / "model", 2, 4)
    shard.part.to(torch.bfloat16)
    said: list[Message] = []
    gate = Gate(tmp_path / "windows", "east-0", guard_s=0.001, quantile=0.75)
    worker = Prefilling(shard, gate, lambda address, message, payload: said.append(message))
    worker.give(Measure(points=((4, 0), (4, 8))), bytearray())
    worker._read()
    gate.close()
    assert [type(message) for message in said] == [Measured]
