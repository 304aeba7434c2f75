from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError, RunError
from geotrain.model import Part, generate
from geotrain.model.generate import choice
from tests.model.tiny import config, filled

SHAPE = config(initializer_range=0.5)


@pytest.fixture(scope="module")
def part() -> Part:
    return filled(SHAPE)


def test_greedy_is_the_likeliest_token_of_the_whole_text_each_time(part: Part):
    found = list(generate(part, [1, 2, 3], max_new_tokens=30))
    text = [1, 2, 3, *found]
    likeliest = part(torch.tensor([text]))[0].argmax(-1).tolist()
    assert found == likeliest[2:-1]
    assert len(set(found)) > 3


def test_sampling_follows_the_seed(part: Part):
    def text(seed: int) -> list[int]:
        return list(generate(part, [1], max_new_tokens=20, temperature=1.5, seed=seed))

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_sampling_follows_the_models_shares(part: Part):
    shares = torch.softmax(part(torch.tensor([[4]]))[0, 0].detach() / 2.0, dim=0)
    drawn = Counter(next(generate(part, [4], max_new_tokens=1, temperature=2.0, seed=seed)) for seed in range(300))
    token, count = drawn.most_common(1)[0]
    assert abs(count / 300 - float(shares[token])) < 0.1
    assert len(drawn) > 5


def test_top_p_leaves_only_the_likeliest(part: Part):
    shares, order = torch.softmax(part(torch.tensor([[4]]))[0, 0].detach() / 2.0, dim=0).sort(descending=True)
    top_p = float(shares[:3].sum()) - 1e-3
    drawn = {
        next(generate(part, [4], max_new_tokens=1, temperature=2.0, top_p=top_p, seed=seed)) for seed in range(100)
    }
    assert drawn == set(order[:3].tolist())
    tiny = list(generate(part, [4], max_new_tokens=9, temperature=2.0, top_p=1e-9))
    assert tiny == list(generate(part, [4], max_new_tokens=9))


def test_what_is_drawn_depends_on_seed_and_number_alone():
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))

    def drawn(seed: int | None, number: int) -> int:
        return choice(logits, temperature=5.0, top_p=0.9, seed=seed, number=number)

    texts = [[drawn(seed, number) for number in range(20)] for seed in range(20)]
    assert texts == [[drawn(seed, number) for number in range(20)] for seed in range(20)]
    assert len({tuple(text) for text in texts} | set(zip(*texts, strict=True))) == 40
    assert len({drawn(None, 0) for _ in range(50)}) > 5, "without a seed it is new each time"


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40), st.floats(1e-9, 1.0), st.integers(0, 99))
def test_only_tokens_are_drawn_that_have_less_than_top_p_ahead(numbers: list[float], top_p: float, seed: int):
    logits = torch.tensor(numbers)
    shares = torch.softmax(logits.double(), dim=0)
    token = choice(logits, temperature=1.0, top_p=top_p, seed=seed, number=0)
    assert shares[shares > shares[token]].sum() < top_p + 1e-9
    assert shares[token] > 0


@pytest.mark.parametrize("temperature", [1e-3, 1e-40, 5e-324])
def test_hardly_any_temperature_takes_the_likeliest(temperature: float):
    logits = torch.tensor([1.0, 3.0, 2.0])
    assert {choice(logits, temperature=temperature, top_p=1.0, seed=seed, number=0) for seed in range(9)} == {1}


def test_it_ends_before_a_stop_token(part: Part):
    free = list(generate(part, [1], max_new_tokens=20))
    stop = free[5]
    assert list(generate(part, [1], max_new_tokens=20, stop=[stop])) == free[: free.index(stop)]
    assert list(generate(part, [1], max_new_tokens=0)) == []


def test_a_model_that_diverged():
    part = filled(SHAPE)
    torch.nn.init.constant_(part.lm_head.weight, float("nan"))
    with pytest.raises(RunError, match="the model's logits are not numbers: its training has diverged"):
        next(generate(part, [1], max_new_tokens=1))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ids": []}, "the prompt is empty and must have at least one token"),
        ({"ids": [1, 37]}, "the prompt has token 37 and must have tokens below 37, the model's vocab_size"),
        ({"ids": [-1]}, "the prompt has token -1 and must have tokens below 37, the model's vocab_size"),
        (
            {"max_new_tokens": 64},
            "max_new_tokens is 64 and must be 0 to 63: the prompt has 1 token and the model's "
            "max_position_embeddings is 64",
        ),
        ({"temperature": -0.5}, "temperature is -0.5 and must be at least 0 and finite"),
        ({"temperature": float("nan")}, "temperature is nan and must be at least 0 and finite"),
        ({"top_p": 0.0}, "top_p is 0 and must be above 0 and at most 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(part: Part, changes: dict[str, Any], sentence: str):
    asked: dict[str, Any] = {"ids": [1], "max_new_tokens": 5} | changes
    with pytest.raises(InputError) as caught:
        generate(part, asked.pop("ids"), **asked)
    assert str(caught.value) == sentence
