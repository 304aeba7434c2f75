"""Training as plainly as it can be written: one process, the whole model, one microbatch after the other."""

from pathlib import Path

import torch
from torch import Tensor

from geotrain.model import Config
from geotrain.model.cross_entropy import loss
from geotrain.model.llama import Part
from geotrain.plan import Plan
from geotrain.tokens import Batches, Dataset
from geotrain.training.optimizer import Recipe


def train_plainly(
    plan: Plan, data: Path, *, steps: int, recipe: Recipe, seed: int
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and final weights."""
    torch.set_num_threads(1)
    job = plan.job
    model = Part(Config.of(job.model, sequence=job.sequence))
    model.initialize(seed)
    batches = Batches(
        Dataset.open(data),
        sequence=job.sequence,
        microbatch=job.microbatch,
        microbatches=plan.num_microbatches,
        pipelines=plan.num_pipelines,
        seed=seed,
    )
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    norms = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    adam = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": norms, "weight_decay": 0.0}],
        betas=recipe.betas,
        eps=recipe.epsilon,
    )
    losses = []
    for step in range(steps):
        adam.zero_grad()
        total = 0.0
        for microbatch in range(plan.num_microbatches):
            for pipeline in range(plan.num_pipelines):
                inputs, targets = map(torch.from_numpy, batches.batch(step, pipeline, microbatch))
                mean = loss(model(inputs), targets) / plan.tokens_per_step
                mean.backward()
                total += float(mean.detach())
        if recipe.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for group in adam.param_groups:
            group["lr"] = recipe.rate_at(step, steps)
        adam.step()
        losses.append(total)
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}
