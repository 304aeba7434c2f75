from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from geotrain.errors import InputError, RunError
from geotrain.model import Part, generate
from geotrain.serving.contract import BLOCK_TOKENS, Broken, Piece, Sampling
from geotrain.serving.decoding import Decoder
from geotrain.serving.shard import Chunk, Shard
from tests.model.tiny import filled
from tests.serving.prefilling import SHAPE, WORDS, decode, decoder, ids_of, prefill, prompt

TOKEN_BYTES = 2 * SHAPE.num_hidden_layers * SHAPE.num_key_value_heads * SHAPE.head_dim * 4
GREEDY = Sampling(max_tokens=8, temperature=0.0)


@pytest.fixture(scope="module")
def part() -> Part:
    return filled(SHAPE)


def alone(part: Part, ids: list[int], sampling: Sampling) -> list[int]:
    asked: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed or 0}
    return list(generate(part, ids, max_new_tokens=sampling.max_tokens, **asked))


def join(part: Part, decoder: Decoder, request: str, ids: list[int], sampling: Sampling) -> Piece:
    return prefill([Shard(part)], {request: ids}, sampling, decoder)[request]


SAMPLINGS = st.builds(
    Sampling,
    max_tokens=st.integers(1, 40),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.5]),
    top_p=st.sampled_from([1.0, 0.8]),
    seed=st.integers(0, 99),
)


@given(st.lists(st.tuples(st.integers(1, 80), SAMPLINGS, st.integers(0, 9), st.booleans()), min_size=1, max_size=6))
@settings(max_examples=8, phases=[Phase.generate])
def test_an_answer_does_not_depend_on_who_else_is_there(part: Part, arrivals: list[tuple[int, Sampling, int, bool]]):
    """Each comes some steps after the one before; some leave early."""
    running = decoder(part)
    answers: dict[str, list[Piece]] = {}

    def steps(number: int) -> Iterator[None]:
        for _ in range(number):
            for request, piece in running.step().items():
                assert isinstance(piece, Piece)
                answers[request].append(piece)
            yield

    for number, (length, sampling, later, leaves) in enumerate(arrivals):
        answers[str(number)] = [join(part, running, str(number), prompt(length), sampling)]
        for _ in steps(later):
            pass
        if leaves:
            running.leave(str(number))
    while running.running:
        next(steps(1))
    for number, (length, sampling, _, leaves) in enumerate(arrivals):
        found, expected = answers[str(number)], alone(part, prompt(length), sampling)
        assert ids_of(found) == (expected[: len(found)] if leaves else expected)
    assert (running.reserved_tokens, running.held_bytes) == (0, 0)


def test_it_ends_by_token_string_and_number(part: Part):
    free = alone(part, prompt(9), Sampling(max_tokens=30, temperature=0.0))
    stop_id = free[12]
    running = decoder(part, stop_ids=[stop_id])
    begun = {
        name: join(part, running, name, prompt(9), sampling)
        for name, sampling in {
            "token": Sampling(max_tokens=30, temperature=0.0),
            "number": Sampling(max_tokens=5, temperature=0.0),
            "one": Sampling(max_tokens=1, temperature=0.0),
            "string": Sampling(max_tokens=30, temperature=0.0, stop=(WORDS.decode(free[:4])[-2:],)),
        }.items()
    }
    assert running.running == 4 - (begun["one"].finish is not None) - (begun["string"].finish is not None)
    answers = decode(running, begun)
    assert ids_of(answers["token"]) == free[: free.index(stop_id) + 1]
    assert ids_of(answers["number"]) == free[:5]
    assert {name: pieces[-1].finish for name, pieces in answers.items()} == {
        "token": "stop",
        "number": "length",
        "one": "length",
        "string": "stop",
    }
    assert WORDS.decode(free).startswith("".join(piece.text for piece in answers["string"]))


def test_room_is_kept_to_the_end_of_every_answer(part: Part):
    running = decoder(part, limit_bytes=TOKEN_BYTES * (4 * BLOCK_TOKENS + 7))
    assert running.room_tokens == 4 * BLOCK_TOKENS
    sampling = Sampling(max_tokens=2 * BLOCK_TOKENS - 5, temperature=0.0)
    assert running.can_admit(4 * BLOCK_TOKENS) and not running.can_admit(4 * BLOCK_TOKENS + 1)
    begun = {"a": join(part, running, "a", prompt(5), sampling)}
    assert (running.running, running.reserved_tokens) == (1, 2 * BLOCK_TOKENS)
    assert running.held_bytes == BLOCK_TOKENS * TOKEN_BYTES, "taken when it is needed"
    with pytest.raises(RunError, match="request b: no room for 129 tokens: 128 of 256 are reserved"):
        running.reserve("b", prompt(6), sampling)
    assert "b" not in running
    running.reserve("c", prompt(5), sampling)
    assert (running.waiting, running.can_admit(1)) == (1, False)
    decode(running, begun)
    assert running.reserved_tokens == 2 * BLOCK_TOKENS
    running.leave("c")
    assert (running.reserved_tokens, running.held_bytes) == (0, 0)


def test_memory_never_exceeds_the_limit(part: Part):
    limit = TOKEN_BYTES * 6 * BLOCK_TOKENS
    running = decoder(part, limit_bytes=limit)
    sampling = Sampling(max_tokens=2 * BLOCK_TOKENS - 30, temperature=0.0)
    prefill([Shard(part)], {name: prompt(30) for name in "abc"}, sampling, running)
    held = []
    while running.running:
        running.step()
        held.append(running.held_bytes)
    assert max(held) == limit
    assert held[-1] == 0


def handed(part: Part, ids: list[int]) -> dict[int, torch.Tensor]:
    shard = Shard(part)
    shard.start("x", len(ids))
    list(shard.run([Chunk(request="x", x=torch.tensor(ids), position=0)]))
    return {layer: shard.kv("x", layer, 0, len(ids)) for layer in shard.layers}


def test_keys_and_values_come_in_pieces_and_again(part: Part):
    ids = prompt(20)
    kv, expected = handed(part, ids), alone(part, ids, GREEDY)
    running = decoder(part)
    running.reserve("a", ids, GREEDY)
    for start, end in [(0, 7), (0, 12), (12, 20)]:
        for layer in reversed(part.layers):
            running.receive("a", layer, start, kv[layer][:, :, start:end])
    answers = decode(running, {"a": running.join("a", expected[0])})
    assert ids_of(answers["a"]) == expected


def test_what_does_not_fit_together_is_refused(part: Part):
    ids = prompt(20)
    kv = handed(part, ids)
    running = decoder(part)
    running.reserve("a", ids, GREEDY)
    with pytest.raises(RunError, match="request a is here already"):
        running.reserve("a", ids, GREEDY)
    with pytest.raises(RunError, match=r"keys and values \[2, 2, 20, 8\] of layer 4 are of another model"):
        running.receive("a", 4, 0, kv[0])
    with pytest.raises(RunError, match=r"keys and values \[2, 1, 20, 8\] of layer 0 are of another model"):
        running.receive("a", 0, 0, kv[0][:, :1])
    with pytest.raises(RunError, match="layer 0 has keys and values of 0 tokens of 20, and those of 5 to 20 came"):
        running.receive("a", 0, 5, kv[0][:, :, 5:])
    with pytest.raises(RunError, match="layer 0 has keys and values of 0 tokens of 20, and those of 0 to 40 came"):
        running.receive("a", 0, 0, torch.cat((kv[0], kv[0]), dim=2))
    running.receive("a", 0, 0, kv[0])
    with pytest.raises(RunError, match="request a: keys and values of layer 1 are missing"):
        running.join("a", 1)
    assert "a" not in running
    with pytest.raises(InputError, match="max_new_tokens is 2090 and must be 0 to 2080"):
        running.reserve("b", ids, Sampling(max_tokens=2090))


def test_one_whose_numbers_went_wrong_ends_alone(part: Part):
    ids = prompt(20)
    running = decoder(part)
    good = join(part, running, "good", ids, GREEDY)
    running.reserve("bad", ids, GREEDY)
    for layer, kv in handed(part, ids).items():
        running.receive("bad", layer, 0, torch.full_like(kv, torch.nan))
    running.join("bad", 1)
    pieces = running.step()
    assert isinstance(pieces["bad"], Broken)
    assert str(pieces["bad"]) == "the model's logits are not numbers: its training has diverged"
    assert isinstance(pieces["good"], Piece)
    answers = decode(running, {"good": good})
    assert [good.token, pieces["good"].token, *ids_of(answers["good"])[1:]] == alone(part, ids, GREEDY)


def test_nobody_there(part: Part):
    assert decoder(part).step() == {}
    decoder(part).leave("stranger")
