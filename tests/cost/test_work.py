import pytest

from geotrain.cost.work import Share, Work
from tests.cost.jobs import make_job

TOKENS, HIDDEN, VOCAB = 4096, 4096, 50257
TH = TOKENS * HIDDEN


def test_a_gpt_layer_moves_operands_and_elementwise_values():
    """Per token and hidden unit: products (4 + 2 + 5 + 5), attention 4, norms and residuals 11, activation 8."""
    layer = Share(make_job(recompute="none"), 1, True).layer
    weights = 12 * HIDDEN**2
    forward = 2 * (weights + (4 + 2 + 5 + 5 + 4 + 11 + 8) * TH)
    assert layer.forward == Work(flops=28 * TH * HIDDEN, moved_bytes=forward)
    products = 2 * (weights + 16 * TH)
    assert layer.weight_grad == Work(flops=24 * TH * HIDDEN, moved_bytes=products + 8 * weights)
    assert layer.input_grad == Work(flops=32 * TH * HIDDEN, moved_bytes=products + 2 * (forward - products))
    assert layer.recompute == layer.forward


def test_scores_that_are_not_fused_go_through_memory():
    fused, unfused = (Share(make_job(attention=a), 1, True).layer.forward for a in ("fused", "unfused"))
    assert unfused.moved_bytes - fused.moved_bytes == 2 * 6.5 * 32 * TOKENS**2
    assert unfused.flops == fused.flops


def test_selective_recompute_does_attention_again_before_its_input_gradient():
    none, selective = (Share(make_job(recompute=r), 1, True).layer for r in ("none", "selective"))
    assert selective.input_grad == none.input_grad + Work(flops=4 * TH * HIDDEN, moved_bytes=2 * 4 * TH)
    assert (selective.forward, selective.weight_grad) == (none.forward, none.weight_grad)


@pytest.mark.parametrize(("sequence_parallel", "whole"), [(True, 11 / 8), (False, 11)], ids=["spread", "whole"])
def test_tensor_parallel_gpus_share_products_and_exchange_hidden_vectors(sequence_parallel: bool, whole: float):
    forward = Share(make_job(), 8, sequence_parallel).layer.forward
    assert forward.flops == 28 / 8 * TH * HIDDEN
    split, kept = 3 / 8 + 1 / 8 + 4 / 8 + 4 / 8 + 4 / 8 + 8 / 8, 1 + 1 + 1 + 1
    assert forward.moved_bytes == 2 * (12 * HIDDEN**2 / 8 + (split + kept + whole) * TH)
    assert forward.exchanged_bytes == 2 * (2 * 7 / 8) * 2 * TH
    assert forward.exchanges == 2 * 7


def test_the_ends_have_embedding_and_head():
    share = Share(make_job(), 1, True)
    neither = share.ends(is_first=False, is_last=False)
    assert (neither.forward, neither.input_grad, neither.weight_grad, neither.recompute) == (Work(),) * 4
    first, last, both = (share.ends(is_first=f, is_last=e) for f, e in ((True, False), (False, True), (True, True)))
    table = 8 * VOCAB * HIDDEN
    assert first.weight_grad == Work(moved_bytes=table)
    assert last.forward.flops == last.weight_grad.flops == last.input_grad.flops == 2 * TH * VOCAB
    logits, product = TOKENS * VOCAB, 2 * (TH + TOKENS * VOCAB + HIDDEN * VOCAB)
    assert last.forward.moved_bytes == product + 16 * logits
    assert both.forward == first.forward + last.forward
