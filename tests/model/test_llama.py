from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from geotrain.model import Cache, Config, Part, deferred_weights, loss, stored_name
from tests.model.tiny import config, filled, gradients, microbatch_loss, tokens


def cut(config: Config, bounds: list[int]) -> list[Part]:
    """Parts between these layers."""
    edges = [0, *sorted(bounds), config.num_hidden_layers]
    last = len(edges) - 2
    return [
        filled(config, first=first, last=end, embeds=number == 0, heads=number == last)
        for number, (first, end) in enumerate(pairwise(edges))
    ]


def chained(parts: list[Part], ids: Tensor) -> Tensor:
    """Each part's hidden states cross to the next as a tensor of their own, and gradients cross back."""
    xs, outs = [ids[:, :-1]], []
    for part in parts:
        outs.append(part(xs[-1]))
        xs.append(outs[-1].detach().requires_grad_())
    total = loss(outs[-1], ids[:, 1:]) / ids[:, 1:].numel()
    gradient = None
    for part, x, out in reversed(list(zip(parts, xs, outs, strict=False))):
        with deferred_weights(part) as later:
            (total if gradient is None else out).backward(gradient)
        later.run()
        gradient = x.grad
    return total


def test_names_are_those_of_hugging_face_with_the_models_layer_numbers():
    part = Part(config(), first=1, last=2, embeds=False)
    assert list(part.state_dict()) == [
        "model.layers.1.input_layernorm.weight",
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight",
        "model.layers.1.self_attn.o_proj.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.layers.1.mlp.gate_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
    ]
    assert "lm_head.weight" not in Part(config(tie_word_embeddings=True)).state_dict()


@st.composite
def models(draw: st.DrawFn) -> tuple[Config, list[int]]:
    kv_heads = draw(st.integers(1, 2))
    heads = kv_heads * draw(st.integers(1, 3))
    shape = config(
        num_hidden_layers=draw(st.integers(1, 4)),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 3)),
        hidden_size=heads * draw(st.integers(1, 4)),
        intermediate_size=draw(st.integers(1, 9)),
        vocab_size=draw(st.integers(2, 11)),
        tie_word_embeddings=draw(st.booleans()),
    )
    return shape, draw(st.lists(st.integers(0, shape.num_hidden_layers), max_size=3))


@given(models())
@settings(max_examples=40)
def test_parts_in_a_chain_are_the_whole_model(model: tuple[Config, list[int]]):
    shape, bounds = model
    whole, parts = filled(shape), cut(shape, bounds)
    ids = tokens(shape, 2, 6)
    expected = microbatch_loss(whole, ids)
    expected.backward()
    torch.testing.assert_close(chained(parts, ids), expected)

    found: dict[str, Tensor] = {}
    for part in parts:
        for name, parameter in part.named_parameters():
            own = stored_name(shape, name)
            assert torch.equal(parameter, whole.get_parameter(own)), name
            assert parameter.grad is not None
            found[own] = found[own] + parameter.grad if own in found else parameter.grad
    assert found.keys() == gradients(whole).keys()
    for name, gradient in gradients(whole).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5)


def test_a_part_says_whether_it_holds_one_end_of_a_tied_pair():
    tied = config(tie_word_embeddings=True)
    first, middle, last = cut(tied, [1, 2])
    assert first.tied_end is first.get_parameter("model.embed_tokens.weight")
    assert middle.tied_end is None
    assert last.tied_end is last.get_parameter("lm_head.weight")
    assert Part(tied).tied_end is None
    assert [part.tied_end for part in cut(config(), [1])] == [None, None]


def test_initial_numbers_depend_on_the_seed_and_nothing_else():
    shape = config(initializer_range=0.1)
    torch.manual_seed(1)
    one = filled(shape)
    torch.manual_seed(2)
    same, other = filled(shape), filled(shape, seed=2)
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, same.get_parameter(name)), name
        assert name.endswith("norm.weight") == torch.equal(parameter, other.get_parameter(name)), name
    matrices = [parameter.detach() for parameter in one.parameters() if parameter.dim() == 2]
    assert len({float(matrix[0, 0]) for matrix in matrices}) == len(matrices)
    assert 0.09 < torch.cat([matrix.flatten() for matrix in matrices]).std() < 0.11


def test_no_token_sees_a_later_one():
    shape = config()
    part = filled(shape)
    ids = tokens(shape, 1, 8)
    changed = ids.clone()
    changed[0, 5] = (ids[0, 5] + 1) % shape.vocab_size
    before, after = part(ids)[0], part(changed)[0]
    assert torch.equal(before[:5], after[:5])
    assert not torch.isclose(before[5:], after[5:]).all(dim=-1).any()


@pytest.mark.parametrize("pieces", [[8], [1] * 8, [3, 4, 1], [5, 3]], ids=str)
def test_a_cache_gives_what_the_whole_sequence_gives(pieces: list[int]):
    shape = config()
    parts = cut(shape, [1])
    ids = tokens(shape, 2, 8)
    caches = [Cache(capacity=10) for _ in parts]
    found = []
    for x in ids.split(pieces, dim=1):
        for part, cache in zip(parts, caches, strict=True):
            x = part(x, cache)
        found.append(x)
    torch.testing.assert_close(torch.cat(found, dim=1), filled(shape)(ids), rtol=1e-5, atol=1e-5)
    assert [cache.length for cache in caches] == [8, 8]
    assert [list(cache.layers) for cache in caches] == [[0], [1, 2]]


def test_a_cache_takes_no_more_than_its_capacity():
    part = filled(config())
    with pytest.raises(AssertionError, match="5 tokens in a cache for 4"):
        part(tokens(config(), 1, 5), Cache(capacity=4))
