"""What a run has to save, of a tiny model."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geotrain.model import Config, Part
from geotrain.training.checkpoint import Position, Saver, available, is_good, load, steps
from geotrain.training.checkpoint.steps import SavedStep

torch.set_num_threads(1)

MODEL = Config(
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=37,
    max_position_embeddings=64,
)


def trained(model: Config = MODEL, *, updates: int = 2) -> dict[str, Tensor]:
    """The whole model's parameters and what an AdamW has of them after some updates, in numbers of their own."""
    part = Part(model)
    part.initialize(updates)
    state: dict[str, Tensor] = dict(part.named_parameters())
    for name, parameter in part.named_parameters():
        state[f"optimizer.exp_avg.{name}"] = parameter.detach() / 3
        state[f"optimizer.exp_avg_sq.{name}"] = parameter.detach() ** 2
        state[f"optimizer.step.{name}"] = torch.tensor(float(updates))
    return state


def zeros(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def cut(state: dict[str, Tensor], layers: Iterable[int]) -> list[dict[str, Tensor]]:
    """The stages of a layout with so many layers each."""
    homes = [stage for stage, count in enumerate(layers) for _ in range(count)]

    def home(name: str) -> int:
        if layer := re.search(r"layers\.(\d+)", name):
            return homes[int(layer[1])]
        return 0 if "embed_tokens" in name else homes[-1]

    return [{name: tensor for name, tensor in state.items() if home(name) == stage} for stage in sorted(set(homes))]


def position(step: int) -> Position:
    return Position(step=step, samples=step * 8, tokens=step * 128, data="words")


def saver(directory: Path, stage: int = 0, num_stages: int = 1, **choices: Any) -> Saver:
    defaults: dict[str, Any] = {"model": MODEL, "attempt": "a", "deadline_s": 30}
    return Saver(directory, stage=stage, num_stages=num_stages, **defaults | choices)


def save(directory: Path, step: int, *stages: dict[str, Tensor], num_stages: int = 0, **choices) -> None:
    """Write a step, one process per stage."""
    for stage, state in enumerate(stages):
        writer = saver(directory, stage, num_stages or len(stages), **choices)
        writer.save(state, position(step))
        writer.wait()


def load_step(directory: Path, step: int, state: dict[str, Tensor]) -> Position:
    found = next(found for found in steps(directory) if found.id.step == step)
    return load(found, state, model=MODEL)


def newest_good(directory: Path, state: dict[str, Tensor], *, report: Callable[[str], None]) -> SavedStep | None:
    """What a process alone would resume from."""
    found = reversed(available(directory, state, model=MODEL, report=report))
    return next((step for step in found if is_good(step, state, model=MODEL, report=report)), None)


def directories(directory: Path, depth: int = 2) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.glob("/".join("*" * depth)))
