"""A measured profile says what the trainer's own passes take and hold."""

from pathlib import Path

import pytest
import torch

from geotrain.cost import stage_costs
from geotrain.errors import DoesNotFitError, InputError
from geotrain.plan import Plan
from geotrain.simulation import simulate
from geotrain.training import profiling
from geotrain.training.bench import Cut
from geotrain.training.profiling import Measurement, Profiler, slots_of
from geotrain.workload import Job, Profile, StageProfile
from tests.training.plans import MODEL, plan

torch.set_num_threads(1)

CPU = Profiler(device=torch.device("cpu"), repeat=3)


def job(**changes: object) -> Job:
    fields = {"model": MODEL, "sequence": 16, "microbatch": 2, "microbatches": 4, "recompute": False, **changes}
    return Job.parse(fields, source=Path("job.yaml"))


def measured(plan: Plan, old: Profile | None = None, dc: str | None = None) -> Measurement:
    return CPU.plan(plan, old or Profile(), dc)


def with_profile(plan: Plan, profile: Profile) -> Plan:
    return plan.change(job=plan.job.model_copy(update={"profile": profile}))


@pytest.mark.parametrize("recompute", [True, False])
def test_every_stage_gets_an_entry_and_the_plan_simulates_with_it(recompute: bool):
    asked = plan(["east", "south", "west"], layers=4, job={"recompute": recompute})
    found = measured(asked)
    assert isinstance(found.profile.stage, list) and len(found.profile.stage) == 3
    for figures, entry in zip(found.figures.values(), found.profile.stage, strict=True):
        assert all(time_s > 0 for times_s in figures.times_s.values() for time_s in times_s)
        assert all(len(times_s) == 3 and figures.spread(name) >= 0 for name, times_s in figures.times_s.items())
        assert entry.backward_s is not None and entry.weight_grad_s is not None
        assert 0 < entry.weight_grad_s <= entry.backward_s
    costs = stage_costs(with_profile(asked, found.profile))
    assert [cost.forward_s for cost in costs] == [entry.forward_s for entry in found.profile.stage]
    step_s = simulate(with_profile(asked, found.profile)).step_time_s
    assert step_s > 4 * max(cost.forward_s + cost.backward_s for cost in costs)


def test_bytes_are_those_of_the_tensors():
    whole = CPU.job(job(), 8)
    weights = 8 * (32 * (32 + 2 * 16 + 32) + 3 * 32 * 64 + 2 * 32) + 2 * 97 * 32 + 32
    tensors = 8 * 9 + 3
    # Weights, gradients, AdamW's two averages, and its count of steps for each tensor.
    assert whole.figures[0].static_bytes == 16 * weights + 4 * tensors
    assert whole.profile.gradient_bytes == 4 * weights
    assert whole.profile.boundary_bytes == 2 * 16 * 32 * 4


def test_what_a_microbatch_holds_grows_with_it_and_has_no_weights_in_it():
    held = {
        (layers, samples): CPU.job(job(microbatch=samples), layers).figures[0].activation_bytes
        for layers, samples in [(1, 2), (1, 4), (2, 2), (3, 2)]
    }
    assert held[3, 2] - held[2, 2] == held[2, 2] - held[1, 2] > 0
    # Cosines and sines of the positions serve all samples.
    assert 2 * held[1, 2] - held[1, 4] == 2 * 16 * 8 * 4


def test_with_recompute_only_the_input_is_held_and_the_rest_comes_back():
    kept = CPU.job(job(), 2).figures[0].activation_bytes
    again = CPU.job(job(recompute=True), 2).figures[0]
    assert again.activation_bytes == 2 * 16 * 32 * 4
    assert again.workspace_bytes == kept - again.activation_bytes


def test_an_interleaved_slot_holds_its_chunks_and_stages_that_are_alike_are_measured_once():
    asked = plan(["east", "east", "east", "south"], layers=16, schedule="interleaved", interleave=2)
    first, second, third, last = slots_of(asked)
    middle = Cut(layers=2, embeds=False, heads=False)
    assert first == (Cut(layers=2, embeds=True, heads=False), middle)
    assert second == third == (middle, middle)
    assert last == (middle, Cut(layers=2, embeds=False, heads=True))
    found = measured(asked)
    assert found.figures[1] is found.figures[2]
    assert found.figures[1].static_bytes == 2 * CPU.job(asked.job, 2).figures[0].static_bytes
    assert simulate(with_profile(asked, found.profile)).step_time_s > 0


def test_other_data_centers_keep_their_entries():
    asked = plan(["east", "south", "south"])
    old = Profile(stage=[StageProfile(forward_s=float(stage + 1)) for stage in range(3)])
    stages = measured(asked, old, "south").profile.stage
    assert isinstance(stages, list)
    assert stages[0] == StageProfile(forward_s=1.0)
    assert all(stage.forward_s is not None and stage.forward_s < 1 for stage in stages[1:])
    with pytest.raises(InputError, match=r"--dc is 'wset' and must be a data center with stages.*: east, south$"):
        measured(asked, old, "wset")
    with pytest.raises(InputError, match="has 3 stages and the plan has 2: measure without --dc"):
        measured(plan(["east", "south"]), old, "south")
    assert len(measured(plan(["east", "south"]), old).figures) == 2


def test_a_stage_without_layers_is_measured_too():
    stages = [{"dc": dc, "layers": layers} for dc, layers in (("east", 3), ("south", 0), ("west", 0))]
    asked = plan(["east", "south", "west"]).change(stages=stages)
    assert [figures.static_bytes > 0 for figures in measured(asked).figures.values()] == [True, False, True]


def test_what_does_not_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(profiling, "free_bytes", lambda device: 600_000)
    with pytest.raises(DoesNotFitError) as refused:
        CPU.job(job(), 8)
    assert str(refused.value) == (
        "a stage of 8 layers takes about 1.689 MiB to measure, and 585.9 KiB are free on this device: "
        "give the job and --layers 2"
    )
    CPU.job(job(), 2)
    monkeypatch.setattr(profiling, "free_bytes", lambda device: 1000)
    with pytest.raises(DoesNotFitError, match="not even one layer fits"):
        CPU.job(job(), 8)


def test_this_machine_has_memory():
    assert profiling.free_bytes(torch.device("cpu")) > 1 << 20


@pytest.mark.parametrize(
    ("changes", "layers", "sentence"),
    [
        pytest.param({"recompute": "selective"}, 2, "recompute is 'selective' and must be full", id="recompute"),
        pytest.param({}, 9, "--layers is 9 and must be 1 to 8, the layers of the model 'custom'", id="layers"),
        pytest.param({"model": MODEL | {"activation": "gelu"}}, 2, "must be 'swiglu'", id="family"),
    ],
)
def test_what_cannot_be_trained_is_not_measured(changes: dict[str, object], layers: int, sentence: str):
    with pytest.raises(InputError, match=sentence):
        CPU.job(job(**changes), layers)
