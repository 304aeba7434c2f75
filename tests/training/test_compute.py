"""What the trainer's passes need and send is what the cost model counts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from geotrain.cost.memory import stage_memory
from geotrain.model import Config, Part
from geotrain.training.bench import Bench, Cut
from geotrain.training.compute import TorchCompute
from geotrain.workload import Job

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
MODEL = {"layers": 1, "hidden": 16, "heads": 2, "ffn": 32, "vocab": 3000, "activation": "swiglu"}
"""Little but logits."""


def make_job(**choices: object) -> Job:
    fields = {"model": MODEL, "sequence": 256, "microbatch": 2, "microbatches": 1, "precision": "fp32", **choices}
    return Job.parse(fields, source=Path("job.yaml"))


def peak_bytes(job: Job, *, split: bool = False) -> tuple[int, int]:
    """Of a microbatch on a last stage without layers: most that it holds, and what is left before the action W."""
    part = Part(Config.of(job.model, sequence=job.sequence), first=1, last=1, embeds=False, heads=True)
    part.initialize(0)
    tokens = np.random.default_rng(0).integers(job.model.vocab, size=(job.microbatch, job.sequence))
    compute = TorchCompute(
        {0: part},
        lambda step, microbatch: (tokens, tokens),
        tokens_per_step=tokens.size,
        device=CPU,
        parcel=torch.float32,
        precision=torch.float32,
    )
    compute.begin(0)
    hidden = torch.randn(*tokens.shape, job.model.hidden)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        compute.forward(0, 0, hidden, keep=True)
        (compute.backward_input if split else compute.backward)(0, 0, None)
    events = profiler.profiler.kineto_results.events()
    held = np.cumsum([event.nbytes() for event in events if event.name() == "[memory]"])
    return int(held.max()), int(held[-1])


def test_a_last_stage_needs_no_more_than_is_planned_for_it():
    job = make_job(recompute="none")
    planned = stage_memory(job, 0, is_first=False, is_last=True, tensor_parallel=1, sequence_parallel=False)
    most, _ = peak_bytes(job)
    assert 0.5 * planned.workspace_bytes < most <= planned.workspace_bytes + planned.activation_bytes


def test_no_logit_gradients_wait_for_the_action_w():
    job = make_job(recompute="none")
    most, waiting = peak_bytes(job, split=True)
    assert waiting < 0.1 * most


def test_a_measured_workspace_has_room_for_the_loss():
    job = make_job(recompute=True)
    figures = Bench(job, (Cut(layers=1, embeds=False, heads=True),), CPU, None).figures(1)
    assert figures.workspace_bytes is not None
    assert figures.workspace_bytes >= peak_bytes(job)[0]
