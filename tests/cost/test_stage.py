from dataclasses import asdict, replace
from typing import Any

import pytest

from geotrain.cost import StageCost, stage_costs, transfer_bytes
from geotrain.errors import InputError
from geotrain.workload import Profile, StageProfile
from tests.cost.jobs import make_job, make_plan

A100, H100 = 312e12, 989.4e12


def times(cost: StageCost) -> tuple[float, float, float, float]:
    return cost.forward_s, cost.recompute_s, cost.backward_s, cost.weight_grad_s


def test_times_are_operations_over_the_achieved_rate():
    first, last = stage_costs(make_plan(2, 2, job=make_job(efficiency=0.5)))
    layers, attention = 2 * 24 * 4096**3, 2 * 4 * 4096**3
    head, rate = 2 * 4096 * 50257 * 4096, 0.5 * A100
    assert times(first) == pytest.approx(
        [seconds / rate for seconds in (layers + attention, layers + attention, 2 * (layers + attention), layers)]
    )
    assert times(last) == pytest.approx(
        [
            (layers + attention + head) / rate,
            (layers + attention) / rate,
            2 * (layers + attention + head) / rate,
            (layers + head) / rate,
        ]
    )
    assert last.input_grad_s == last.backward_s - last.weight_grad_s


def test_unequal_gpus_take_unequal_times():
    slow, fast, _ = stage_costs(make_plan(1, 1, 2, gpus=("a100-80gb", "h100"), job=make_job(efficiency=0.5)))
    assert times(slow) == pytest.approx([seconds * H100 / A100 for seconds in times(fast)])
    assert slow.optimizer_s * 2039 > fast.optimizer_s * 3350  # and the first has the embedding to update


def test_twice_the_layers_take_twice_the_time():
    _, one, two, _ = stage_costs(make_plan(0, 1, 2, 1, job=make_job()))
    assert times(two) == pytest.approx([2 * seconds for seconds in times(one)])


def test_tensor_parallel_gpus_share_the_work_and_the_update_but_reduce_as_one_slot():
    job = make_job(efficiency=0.4)
    alone, shared = (stage_costs(make_plan(4, job=job, tensor_parallel=t))[0] for t in (1, 4))
    assert times(shared) == pytest.approx([seconds / 4 for seconds in times(alone)])
    assert shared.optimizer_s == alone.optimizer_s / 4
    assert shared.gradient_bytes == alone.gradient_bytes == 2 * alone.parameters


def test_layerwise_recompute_is_part_of_backward_on_every_stage():
    none, layerwise = (stage_costs(make_plan(3, 1, job=make_job(recompute=r))) for r in ("none", "layerwise"))
    for before, after in zip(none, layerwise, strict=True):
        assert times(after) == pytest.approx(
            [before.forward_s, 0.0, before.backward_s + before.recompute_s, before.weight_grad_s]
        )


def test_selective_recompute_does_attention_once_more_in_backward():
    none, selective = (
        stage_costs(make_plan(4, job=make_job(recompute=r, efficiency=0.5)))[0] for r in ("none", "selective")
    )
    attention = 4 * 4 * 4096**3 / (0.5 * A100)
    assert times(selective) == pytest.approx(
        [none.forward_s, none.recompute_s, none.backward_s + attention, none.weight_grad_s]
    )


def test_the_optimizer_reads_and_writes_its_state_once():
    """Gradient and weight in 16 bit, state of 12 bytes there and back, at the achieved rate of the GPU's memory."""
    given, ruled = (stage_costs(make_plan(4, job=make_job(efficiency=e)))[0] for e in (0.5, {"memory": 0.8}))
    assert given.optimizer_s == given.parameters * (2 + 2 + 2 * 12) / 2039e9
    assert ruled.optimizer_s == pytest.approx(given.optimizer_s / 0.8)


def test_a_precision_the_gpu_lacks_is_refused():
    with pytest.raises(InputError) as caught:
        stage_costs(make_plan(4, gpus=("v100",), job=make_job()))
    assert str(caught.value) == "precision 'bf16' is not supported by the GPU 'v100', which has fp16, fp32"


# What a measured value changes, in terms of the formulas' cost; everything else stays.
STAGE_CASES: list[tuple[str, float, Any]] = [
    (
        "forward_s",
        1.0,
        lambda cost: {
            "forward_s": 1.0,
            "recompute_s": cost.recompute_s / cost.forward_s,
            "backward_s": cost.backward_s / cost.forward_s,
            "weight_grad_s": cost.weight_grad_s / cost.forward_s,
        },
    ),
    (
        "backward_s",
        1.0,
        lambda cost: {"backward_s": 1.0, "weight_grad_s": cost.weight_grad_s / cost.backward_s},
    ),
    ("recompute_s", 1.0, lambda cost: {"recompute_s": 1.0}),
    ("weight_grad_s", 1e-3, lambda cost: {"weight_grad_s": 1e-3}),
    ("static_bytes", 7.0, lambda cost: {"memory": replace(cost.memory, static_bytes=7.0)}),
    ("activation_bytes", 7.0, lambda cost: {"memory": replace(cost.memory, activation_bytes=7.0)}),
    ("weight_grad_bytes", 7.0, lambda cost: {"memory": replace(cost.memory, weight_grad_bytes=7.0)}),
    (
        "workspace_bytes",
        7.0,
        lambda cost: {"memory": replace(cost.memory, workspace_bytes=7.0, recomputed_bytes=7.0)},
    ),
]
PROFILE_CASES: list[tuple[str, float, Any]] = [
    ("gradient_bytes", 7.0, lambda cost: {"gradient_bytes": 7.0}),
    ("optimizer_s", 7.0, lambda cost: {"optimizer_s": 7.0}),
    ("boundary_bytes", 7.0, lambda cost: {}),
]


@pytest.mark.parametrize(
    ("profile", "change"),
    [pytest.param({"stage": {name: value}}, change, id=name) for name, value, change in STAGE_CASES]
    + [pytest.param({name: value}, change, id=name) for name, value, change in PROFILE_CASES],
)
def test_a_measured_value_replaces_its_formula_and_what_follows_from_it(profile: dict[str, Any], change):
    formula = stage_costs(make_plan(1, 3, job=make_job()))
    measured = stage_costs(make_plan(1, 3, job=make_job(profile=profile)))
    for before, after in zip(formula, measured, strict=True):
        assert asdict(after) == {
            name: pytest.approx(value) for name, value in asdict(replace(before, **change(before))).items()
        }


def test_every_field_of_a_profile_is_tried_above():
    assert {name for name, *_ in STAGE_CASES} == set(StageProfile.model_fields)
    assert {name for name, *_ in PROFILE_CASES} == set(Profile.model_fields) - {"stage"}


def test_measured_boundary_bytes_are_what_crosses():
    assert transfer_bytes(make_job()) == 33_554_432
    assert transfer_bytes(make_job(profile={"boundary_bytes": "7 MB"})) == 7e6
    assert transfer_bytes(make_job(profile={"boundary_bytes": 0})) == 0


def test_each_stage_may_have_its_own_measurement():
    profile = {"stage": [{"forward_s": 1}, {"forward_s": 2, "backward_s": 5}]}
    first, second = stage_costs(make_plan(2, 2, job=make_job(profile=profile, efficiency=0.5)))
    assert [first.forward_s, first.backward_s] == pytest.approx([1.0, 2.0])
    assert (second.forward_s, second.backward_s) == (2.0, 5.0)


def test_all_of_it_measured_leaves_nothing_to_formulas():
    stage = {name: 1.0 + n for n, name in enumerate(["forward_s", "weight_grad_s", "recompute_s", "backward_s"])}
    (cost,) = stage_costs(make_plan(4, job=make_job(profile={"stage": stage})))
    assert times(cost) == (1.0, 3.0, 4.0, 2.0)


def test_a_weight_gradient_is_never_longer_than_the_backward_it_is_part_of():
    (cost,) = stage_costs(make_plan(4, job=make_job(profile={"stage": {"weight_grad_s": 1e6}})))
    assert cost.weight_grad_s == cost.backward_s


def test_chunks_share_what_was_measured_of_their_stage():
    """Everything but the workspace, which one chunk at a time needs whole."""
    names = ["forward_s", "recompute_s", "backward_s", "static_bytes", "activation_bytes", "weight_grad_bytes"]
    stage = {name: 6.0 for name in names} | {"weight_grad_s": 3.0, "workspace_bytes": 6.0}
    job = make_job(profile={"stage": stage, "gradient_bytes": 6, "optimizer_s": 6})
    costs = stage_costs(make_plan(2, 2, job=job, schedule="interleaved", interleave=2))
    assert len(costs) == 4
    for cost in costs:
        assert times(cost) == (3.0, 3.0, 3.0, 1.5)
        assert (cost.gradient_bytes, cost.optimizer_s) == (3.0, 3.0)
        memory = cost.memory
        assert (memory.static_bytes, memory.activation_bytes, memory.weight_grad_bytes) == (3.0, 3.0, 3.0)
        assert memory.workspace_bytes == 6.0


def test_chunks_put_embedding_and_head_on_the_ends_of_the_model():
    plan = make_plan(2, 2, job=make_job(), schedule="interleaved", interleave=2)
    layer, embedding = 12 * 4096**2, 50257 * 4096
    assert [cost.parameters for cost in stage_costs(plan)] == [layer + embedding, layer, layer, layer + embedding]
    assert [bool(cost.flops.head) for cost in stage_costs(plan)] == [False, False, False, True]
