"""However a model is cut and scheduled, it learns the same: losses and weights equal those of one plain process."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from geotrain.model import Config
from geotrain.plan import Plan, ScheduleName
from geotrain.training.optimizer import Recipe
from geotrain.training.options import Options
from geotrain.workload import MODELS, RopeScaling
from tests.training.data import VOCAB, dataset
from tests.training.plans import MODEL, plan
from tests.training.reference import train_plainly
from tests.training.team import Team, team

STEPS = 20
BATCH = 12
RECIPE = Recipe(learning_rate=3e-3, warmup_steps=5, clip=0.5)
DCS = ("east", "south", "west", "north")
# Some tests train twice, and what is left of a training that has failed is cleared away.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(250)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of this package's own sources."""
    return dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def workers() -> Iterator[Team]:
    """Enough for four stages and three pipelines."""
    with team(12) as made:
        yield made


Learned = tuple[list[float], dict[str, torch.Tensor]]
"""Losses and final weights."""


@pytest.fixture(scope="module")
def plainly(data: Path) -> Callable[[Plan], Learned]:
    """What one plain process learns; it knows nothing of stages, so that many cuts are compared with the same run."""
    known: dict[Any, Learned] = {}

    def learn(plan: Plan) -> Learned:
        batch = plan.job.model, plan.job.microbatch, plan.num_pipelines
        if batch not in known:
            known[batch] = train_plainly(plan, data, steps=STEPS, recipe=RECIPE, seed=0)
        return known[batch]

    return learn


def made(
    stages: int,
    pipelines: int,
    schedule: ScheduleName,
    *,
    tied: bool = False,
    microbatch: int = 1,
    model: dict[str, Any] | None = None,
    **choices: Any,
) -> Plan:
    """The same model and global batch, however it is cut; with four stages one boundary is inside a data center."""
    chunks = 2 if schedule == "interleaved" else 1
    layers = chunks * stages if chunks * stages > 4 else 4
    job: dict[str, Any] = {"model": MODEL | {"layers": layers, "vocab": VOCAB, "tied_embeddings": tied} | (model or {})}
    job |= {
        "microbatch": microbatch,
        "microbatches": None,
        "global_batch": BATCH,
        "recompute": (stages + pipelines) % 2 == 0,
    }
    dcs = [DCS[max(0, stage - 1)] if stages > 3 else DCS[stage] for stage in range(stages)]
    return plan(
        dcs, layers=layers, job=job, pipelines_per_cell=pipelines, schedule=schedule, interleave=chunks, **choices
    )


def trained(workers: Team, plan: Plan, data: Path, out: Path, **options: Any) -> Learned:
    """By a run."""
    shutil.rmtree(out, ignore_errors=True)
    reports = workers.train(plan, Options(dc="", out=out, data=data, steps=STEPS, recipe=RECIPE, **options))
    return [report["loss"] for report in reports], load_file(out / "model" / "model.safetensors")


def same(one: Learned, other: Learned) -> None:
    assert len(one[0]) == len(other[0]) == STEPS
    assert one[0] == pytest.approx(other[0], abs=1e-5)
    assert one[1].keys() == other[1].keys()
    for name, tensor in one[1].items():
        # Adam divides each gradient by its own size: where one is near 0, its rounding shows in that weight.
        apart = (tensor - other[1][name]).abs()
        strays = (apart > 5e-5).float().mean()
        assert apart.mean() < 1e-5 and strays < 1e-3, (name, apart.mean(), strays, apart.max())


CUTS: list[tuple[ScheduleName, int, int]] = [
    ("gpipe", 2, 3),
    ("1f1b", 4, 1),
    ("interleaved", 1, 2),
    ("interleaved", 3, 2),
    ("varuna", 3, 1),
    ("zero-bubble", 4, 3),
    ("zero-bubble-2p", 2, 1),
    ("atlas", 1, 2),
    ("atlas", 4, 3),
    ("auto", 3, 2),
]
"""Of all schedules x 1 to 4 stages x 1 to 3 pipelines: every one of each, and both kinds of odd ones out."""


@pytest.mark.parametrize(("schedule", "stages", "pipelines"), CUTS)
def test_every_schedule_and_cut_learns_what_one_process_learns(
    workers: Team,
    data: Path,
    plainly: Callable[[Plan], Learned],
    tmp_path: Path,
    schedule: ScheduleName,
    stages: int,
    pipelines: int,
):
    decided = made(stages, pipelines, schedule, tied=pipelines == 2)
    plain = plainly(decided)
    assert plain[0][-1] < plain[0][0] - 0.2
    same(trained(workers, decided, data, tmp_path / "run", sharded=pipelines == 3), plain)


@pytest.mark.parametrize("schedule", ["atlas"])
def test_pooled_and_unpooled_are_bit_identical(workers: Team, data: Path, tmp_path: Path, schedule: ScheduleName):
    ways = [
        trained(workers, made(3, 3, schedule, wan={"sharing": sharing}), data, tmp_path / sharing)
        for sharing in ("spatial", "temporal")
    ]
    assert ways[0][0] == ways[1][0]
    for name, tensor in ways[0][1].items():
        assert torch.equal(tensor, ways[1][1][name]), name


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tensor_parallel_slots_learn_the_same(workers: Team, data: Path, tmp_path: Path, family: str):
    decided = made(2, 1, "1f1b", microbatch=3, tensor_parallel=2, gpus_per_node=4, model={"family": family})
    plain = train_plainly(decided, data, steps=STEPS, recipe=RECIPE, seed=0)
    same(trained(workers, decided, data, tmp_path / "run"), plain)


def test_biases_and_stretched_positions_are_learned_and_saved(workers: Team, data: Path, tmp_path: Path):
    catalog = MODELS["qwen2.5-0.5b"]
    scaling = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
    scaling["original_max_position_embeddings"] = 16
    model = {"family": catalog.family, "rope_theta": catalog.rope_theta, "rope_scaling": scaling, "norm_eps": 1e-4}
    decided = made(2, 2, "zero-bubble", tied=True, model=model)
    plain = train_plainly(decided, data, steps=STEPS, recipe=RECIPE, seed=0)
    same(trained(workers, decided, data, tmp_path / "run"), plain)
    assert any(name.endswith("q_proj.bias") and tensor.any() for name, tensor in plain[1].items())
    saved = Config.load(tmp_path / "run" / "model" / "config.json")
    assert saved == Config.of(decided.job.model, sequence=decided.job.sequence)
    assert (saved.model_type, saved.rope_theta, saved.rms_norm_eps) == ("qwen2", 1e6, 1e-4)
    assert saved.rope_scaling == RopeScaling(**scaling)
    theirs = AutoConfig.from_pretrained(tmp_path / "run" / "model")
    assert theirs.rope_parameters == {**scaling, "rope_theta": 1e6}
    assert theirs.tie_word_embeddings


def test_a_run_goes_on_with_another_layout(workers: Team, data: Path, tmp_path: Path):
    # Within the warm-up the learning rate does not depend on how many steps there are in all.
    recipe = Recipe(learning_rate=3e-3, warmup_steps=STEPS, clip=0.5)
    before, after = made(2, 1, "1f1b", tied=True), made(3, 2, "zero-bubble", tied=True)
    told: dict[str, Any] = {"dc": "", "out": tmp_path / "run", "data": data, "recipe": recipe}
    first = workers.train(before, Options(steps=STEPS // 2, **told))
    second = workers.train(after, Options(steps=STEPS, sharded=True, **told))
    losses, weights = train_plainly(before, data, steps=STEPS, recipe=recipe, seed=0)
    same(
        ([report["loss"] for report in first + second], load_file(tmp_path / "run" / "model" / "model.safetensors")),
        (losses, weights),
    )
