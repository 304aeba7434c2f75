"""The trained model out of a checkpoint, as Hugging Face safetensors."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from geotrain.errors import InputError
from geotrain.model import weights
from geotrain.training.checkpoint.loading import load
from geotrain.training.checkpoint.steps import SavedStep, steps

OPTIMIZER = "optimizer."
"""The names of tensors that are not the model's begin with it."""


def export(directory: Path, step: int, out: Path) -> None:
    """Write config.json and model.safetensors; one stage at a time is in memory."""
    complete = [found for found in steps(directory) if found.complete]
    chosen = next((found for found in complete if found.id.step == step), None)
    if chosen is None:
        there = ", ".join(str(found.id.step) for found in complete) or "none"
        raise InputError(f"{directory}: step {step} is not complete here; complete steps: {there}")
    manifest = chosen.stages[0].manifest
    dtype = next(tensor.dtype for name, tensor in manifest.tensors.items() if not name.startswith(OPTIMIZER))
    weights.save(out, manifest.model, _tensors(chosen), dtype=getattr(torch, dtype))


def _tensors(step: SavedStep) -> Iterator[tuple[str, Tensor]]:
    seen: set[str] = set()
    for stage in step.stages:
        state = {
            name: torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype))
            for name, tensor in stage.manifest.tensors.items()
            if name not in seen and not name.startswith(OPTIMIZER)
        }
        load(step, state, model=stage.manifest.model)
        seen |= state.keys()
        yield from state.items()
