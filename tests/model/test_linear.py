import pytest
import torch
from torch import nn

from geotrain.model import deferred_weights
from geotrain.model.linear import Linear
from tests.model.tiny import config, filled, gradients, microbatch_loss, tokens


def linear(dtype: torch.dtype = torch.float32) -> Linear:
    layer = Linear(5, 3).to(dtype)
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
    return layer


def test_its_gradients_are_right():
    layer = linear(torch.float64)
    x = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(
        lambda x, weight: torch.func.functional_call(layer, {"weight": weight}, x), (x, layer.weight)
    )


def test_the_weight_gradient_waits_until_it_is_run():
    layer = linear()
    x = torch.randn(2, 4, 5, requires_grad=True)
    with deferred_weights(layer) as later:
        layer(x).sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None
    later.run()
    assert layer.weight.grad is not None
    before = layer.weight.grad.clone()
    later.run()
    assert torch.equal(layer.weight.grad, before), "nothing is counted twice"


@pytest.mark.parametrize("tied", [False, True])
def test_split_and_whole_backwards_give_the_same_bits(tied: bool):
    shape = config(tie_word_embeddings=tied)
    whole, split, mixed = (filled(shape) for _ in range(3))
    microbatches = tokens(shape, 4, 2, 9)
    waiting = []
    for number, ids in enumerate(microbatches):
        microbatch_loss(whole, ids).backward()
        with deferred_weights(split) as later:
            microbatch_loss(split, ids).backward()
        waiting.append(later)
        if number % 2:
            microbatch_loss(mixed, ids).backward()
        else:
            with deferred_weights(mixed) as later:
                microbatch_loss(mixed, ids).backward()
            later.run()
    for later in waiting:
        later.run()
    expected = gradients(whole)
    assert len(expected) == len(list(whole.parameters()))
    for name, gradient in expected.items():
        assert torch.equal(gradients(split)[name], gradient), name
        assert torch.equal(gradients(mixed)[name], gradient), name


def test_forwards_of_other_microbatches_may_come_between():
    shape = config()
    whole, split = filled(shape), filled(shape)
    one, other = tokens(shape, 2, 2, 9)
    first, second = microbatch_loss(split, one), microbatch_loss(split, other)
    with deferred_weights(split) as later_one:
        first.backward()
    with deferred_weights(split) as later_other:
        second.backward()
    later_one.run()
    later_other.run()
    for ids in (one, other):
        microbatch_loss(whole, ids).backward()
    for name, gradient in gradients(whole).items():
        assert torch.equal(gradients(split)[name], gradient), name


def test_a_backward_that_fails_leaves_nothing_deferred():
    layer = linear()
    with pytest.raises(RuntimeError), deferred_weights(layer):
        layer(torch.ones(1, 5)).backward()  # not a single number
    layer(torch.ones(1, 5)).sum().backward()
    assert layer.weight.grad is not None


def test_frozen_weights_get_no_gradient():
    layer = linear().requires_grad_(False)
    x = torch.ones(1, 5, requires_grad=True)
    with deferred_weights(layer) as later:
        layer(x).sum().backward()
    later.run()
    assert layer.weight.grad is None
    assert x.grad is not None


def test_it_recomputes_inside_backward():
    shape = config()
    plain, recomputed = filled(shape), filled(shape)
    ids = tokens(shape, 2, 9)
    microbatch_loss(plain, ids).backward()
    hidden = torch.utils.checkpoint.checkpoint(recomputed.hidden, ids[:, :-1], use_reentrant=False)
    out = torch.nn.functional.cross_entropy(recomputed.logits(hidden).flatten(0, 1), ids[:, 1:].flatten())
    with deferred_weights(recomputed) as later:
        out.backward()
    later.run()
    for name, gradient in gradients(plain).items():
        torch.testing.assert_close(gradients(recomputed)[name], gradient)
