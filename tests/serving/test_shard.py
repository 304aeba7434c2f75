from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from geotrain.errors import InputError, RunError
from geotrain.model import Cache, Part
from geotrain.serving.contract import Piece, Sampling
from geotrain.serving.shard import Chunk, Shard
from tests.model.families import FAMILIES, continuation, published
from tests.model.tiny import config
from tests.serving.prefilling import SHAPE, decode, decoder, ids_of, prefill, prompt, shards, write

LENGTHS = [1, 2, 3, 63, 64, 65, 300, 1001, 2000]
NEW = 12
WHOLE = 10_000


assert_close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("served")
    write(directory)
    return directory


@pytest.fixture(scope="module")
def whole(model: Path) -> Part:
    return Shard.load(model).part


@pytest.fixture(scope="module")
def expected(model: Path) -> dict[int, list[int]]:
    """What transformers adds to a prompt of each length."""
    theirs: Any = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32)
    found = {}
    for length in LENGTHS:
        ids = torch.tensor([prompt(length)])
        out = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
        found[length] = out[0, length:].tolist()
    return found


@pytest.mark.parametrize(
    ("degree", "chunk", "together"),
    [(1, WHOLE, False), (2, 512, False), (4, 512, True), (4, WHOLE, True), (2, 37, True), (1, 37, True)],
    ids=str,
)
def test_greedy_tokens_are_those_of_transformers(
    model: Path, whole: Part, expected: dict[int, list[int]], degree: int, chunk: int, together: bool
):
    chain = shards(model, degree)
    sampling = Sampling(max_tokens=NEW, temperature=0.0)
    everyone = {str(length): prompt(length) for length in LENGTHS}
    answers: dict[str, list[Piece]] = {}
    for prompts in [everyone] if together else [{request: ids} for request, ids in everyone.items()]:
        running = decoder(whole)
        answers |= decode(running, prefill(chain, prompts, sampling, running, chunk=chunk))
    assert {int(request): ids_of(pieces) for request, pieces in answers.items()} == expected
    assert len({tuple(tokens) for tokens in expected.values()}) == len(LENGTHS)
    assert [shard.tokens_held for shard in chain] == [0] * degree


@pytest.mark.parametrize("name", FAMILIES)
def test_published_families_are_served_in_chunks_over_two_slots(tmp_path: Path, name: str):
    theirs = published(tmp_path, name)
    sampling = Sampling(max_tokens=NEW, temperature=0.0)
    prompts = {str(length): [token % 211 for token in prompt(length)] for length in (5, 90, 300)}
    running = decoder(Shard.load(tmp_path).part)
    answers = decode(running, prefill(shards(tmp_path, 2), prompts, sampling, running, chunk=37))
    for request, ids in prompts.items():
        assert ids_of(answers[request]) == continuation(theirs, ids, NEW)


def test_tied_embeddings_are_on_both_ends(tmp_path: Path):
    part = write(tmp_path, config(num_hidden_layers=2, tie_word_embeddings=True))
    first, last = shards(tmp_path, 2)
    ids = torch.tensor([1, 2, 3])
    for shard in (first, last):
        shard.start("a", 3)
    (hidden,) = run(first, Chunk(request="a", x=ids, position=0))
    assert hidden is not None
    (logits,) = run(last, Chunk(request="a", x=hidden, position=0))
    assert_close(logits, part(ids[None])[0, -1])


def run(shard: Shard, *chunks: Chunk) -> list[torch.Tensor | None]:
    units = shard.run(chunks)
    for _ in units:
        pass
    return units.out


def test_one_layer_at_a_time(model: Path):
    shard = Shard.load(model, 1, 4)
    shard.start("a", 5)
    units = shard.run([Chunk(request="a", x=torch.randn(5, SHAPE.hidden_size), position=0)])
    with pytest.raises(KeyError):
        shard.kv("a", 1, 0, 5)
    seen = []
    for layer in units:
        assert not torch.is_inference_mode_enabled(), "whoever runs it is left alone"
        assert shard.kv("a", layer, 0, 5).shape == (2, SHAPE.num_key_value_heads, 5, SHAPE.head_dim)
        seen.append((layer, len(units.out)))
    assert seen == [(1, 0), (2, 0), (3, 1)]


def test_some_layers_here_and_the_others_on_another_slot_that_has_them_all(model: Path, whole: Part):
    ids, both = torch.tensor(prompt(9)), shards(model, 1) + shards(model, 1)
    for shard in both:
        shard.start("a", 9)
    total = SHAPE.num_hidden_layers
    x: torch.Tensor | None = ids
    for shard, layers in zip(both, (range(1), range(1, total)), strict=True):
        assert x is not None
        units = shard.run([Chunk(request="a", x=x, position=0)], layers)
        assert list(units) == list(layers)
        (x,) = units.out
        for layer in set(range(total)) - set(layers):
            with pytest.raises(KeyError):
                shard.kv("a", layer, 0, 9)
    assert x is not None
    with torch.inference_mode():
        assert_close(x, whole(ids[None])[0, -1])
    for layers in (range(1, 1), range(total + 1)):
        with pytest.raises(RunError, match=f"layers 0 to {total} are here"):
            both[0].run([Chunk(request="a", x=ids, position=9)], layers)


def test_a_pass_waits_while_others_run_and_may_be_given_up(model: Path):
    shard = Shard.load(model, 0, 4)
    a, b = torch.tensor(prompt(40)), torch.tensor(prompt(30))
    shard.start("alone", 40)
    expected = run(shard, Chunk(request="alone", x=a, position=0))[0]
    shard.start("a", 40)
    shard.start("b", 30)
    run(shard, Chunk(request="a", x=a[:25], position=0, is_last=False))
    given_up = shard.run([Chunk(request="a", x=a[25:], position=25)])
    next(given_up)
    next(given_up)
    waiting = shard.run([Chunk(request="a", x=a[25:], position=25)])
    next(waiting)
    assert run(shard, Chunk(request="b", x=b, position=0))[0] is not None
    assert list(waiting) == [1, 2, 3]
    assert_close(waiting.out[0], expected)


def test_only_the_end_of_a_prompt_has_logits(model: Path):
    shard = Shard.load(model)
    for request in "ab":
        shard.start(request, 6)
    ids = torch.tensor(prompt(6))
    out = run(
        shard,
        Chunk(request="a", x=ids[:4], position=0, is_last=False),
        Chunk(request="b", x=ids, position=0),
    )
    assert out[0] is None
    assert out[1] is not None and out[1].shape == (SHAPE.vocab_size,)
    assert_close(run(shard, Chunk(request="a", x=ids[4:], position=4))[0], out[1])


def test_what_does_not_follow_on_is_refused(model: Path):
    shard = Shard.load(model)
    ids = torch.tensor(prompt(6))
    with pytest.raises(RunError, match="request a has not been started, or is over"):
        shard.run([Chunk(request="a", x=ids, position=0)])
    shard.start("a", 6)
    with pytest.raises(RunError, match="request a has been started already"):
        shard.start("a", 6)
    with pytest.raises(RunError, match="request a: a chunk has tokens 2 to 6, and 0 to 6 are awaited"):
        shard.run([Chunk(request="a", x=ids[2:], position=2)])
    shard.release("a")
    shard.release("a")
    assert "a" not in shard


def test_layers_that_the_model_does_not_have(model: Path):
    with pytest.raises(InputError, match="has layers 0 to 4, not 2 to 5"):
        Shard.load(model, 2, 5)
    with pytest.raises(InputError, match="has layers 0 to 4, not 3 to 3"):
        Shard.load(model, 3, 3)


def test_a_cache_of_the_same_prompt_is_what_is_handed_over(model: Path, whole: Part):
    ids = torch.tensor(prompt(20))
    cache = Cache(20)
    with torch.no_grad():
        whole.hidden(ids[None], cache)
    x = ids
    for shard in shards(model, 2):
        shard.start("a", 20)
        (out,) = run(shard, Chunk(request="a", x=x, position=0))
        assert out is not None
        x = out
        for layer in shard.layers:
            assert_close(shard.kv("a", layer, 0, 20), cache.layers[layer][:, 0])
