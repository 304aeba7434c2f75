import pytest

from geotrain.cost.flops import Flops, stage_flops
from geotrain.workload import MODELS, Model
from tests.cost.jobs import make_job

GPTS = [pytest.param(model, id=name) for name, model in MODELS.items() if model.activation == "gelu"]


@pytest.mark.parametrize("batch", [1, 4], ids=["one-sample", "four-samples"])
@pytest.mark.parametrize("model", GPTS)
def test_a_gpt_layer_takes_megatrons_forward_operations(model: Model, batch: int):
    job = make_job(model.name, microbatch=batch)
    s, h = job.sequence, model.hidden
    forward = stage_flops(job, 1, is_last=False).forward
    assert forward == pytest.approx(24 * batch * s * h**2 * (1 + s / (6 * h)), rel=1e-12)


@pytest.mark.parametrize("model", GPTS)
def test_a_step_with_full_recompute_takes_megatrons_operations(model: Model):
    """96 B s l h^2 (1 + s/6h + V/16lh): four times the layers, three times the head, which is not recomputed."""
    job = make_job(model.name, microbatch=2)
    stages = [stage_flops(job, model.layers / 2, is_last=is_last) for is_last in (False, True)]
    step = sum(stage.forward + stage.recompute + stage.input_gradient + stage.weight_gradient for stage in stages)
    s, layers, h, vocab = job.sequence, model.layers, model.hidden, model.vocab
    formula = 96 * 2 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    assert step == pytest.approx(formula, rel=1e-12)


def test_backward_takes_twice_forward_and_attention_has_no_weight_gradient():
    flops = Flops(layers=10, attention=3, head=2)
    assert (flops.forward, flops.recompute, flops.input_gradient, flops.weight_gradient) == (15, 13, 18, 12)
    assert flops.input_gradient + flops.weight_gradient == 2 * flops.forward


def test_grouped_heads_save_in_the_linear_layers_and_not_in_attention():
    sizes = {"layers": 1, "hidden": 8, "heads": 4, "ffn": 16, "vocab": 10, "activation": "swiglu"}
    all_heads, one_group = (
        stage_flops(make_job(sizes | {"kv_heads": kv_heads}, sequence=5), 1, is_last=True) for kv_heads in (4, 1)
    )
    assert all_heads == Flops(layers=2 * 5 * (4 * 64 + 3 * 128), attention=4 * 5 * 5 * 8, head=2 * 5 * 80)
    assert one_group == Flops(layers=2 * 5 * (2 * 64 + 2 * 16 + 3 * 128), attention=4 * 5 * 5 * 8, head=2 * 5 * 80)


def test_a_stage_without_layers_that_is_not_the_last_does_nothing():
    assert stage_flops(make_job(), 0, is_last=False) == Flops(layers=0, attention=0, head=0)
