"""AdamW with warm-up and cosine, its state whole on every copy of a stage or spread over them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from geotrain.errors import InputError
from geotrain.training.gradients import local


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How weights are changed."""

    learning_rate: float = 3e-4
    """The peak."""
    warmup_steps: int = 20
    final_share: float = 0.1
    """Of the peak, at the last step."""
    weight_decay: float = 0.1
    """Of matrices; norms keep theirs."""
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    clip: float = 1.0
    """The most that the norm of all gradients may be; 0 lets them be."""

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise InputError(f"learning rate: {self.learning_rate:g} must be above 0")
        for name in ("warmup_steps", "weight_decay", "clip"):
            if getattr(self, name) < 0:
                raise InputError(f"{name.replace('_', ' ')}: {getattr(self, name):g} must be at least 0")

    def rate_at(self, step: int, steps: int) -> float:
        """Linear warm-up, then half a cosine to the final share; steps count from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, steps - 1 - self.warmup_steps)
        fall = (1 + math.cos(math.pi * min(1.0, done))) / 2
        return self.learning_rate * (self.final_share + (1 - self.final_share) * fall)


class Optimizer:
    """Updates a slot's parameters; with `copies` and `sharded` each copy of a stage updates its share and tells it."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        recipe: Recipe,
        *,
        copies: dist.ProcessGroup | None = None,
        sharded: bool = False,
    ) -> None:
        self.recipe = recipe
        self._parameters = parameters
        self._copies = copies if sharded else None
        rank, size = (dist.get_rank(copies), dist.get_world_size(copies)) if self._copies is not None else (0, 1)
        self._owner = _shares(parameters, size)
        self.mine = {name: parameter for name, parameter in parameters.items() if self._owner[name] == rank}
        """Those whose state is here."""
        groups = [
            {"params": [p for p in self.mine.values() if p.ndim > 1], "weight_decay": recipe.weight_decay},
            {"params": [p for p in self.mine.values() if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]] or [{"params": [torch.nn.Parameter(torch.zeros(0))]}],
            lr=recipe.learning_rate,
            betas=recipe.betas,
            eps=recipe.epsilon,
            foreach=False,
        )

    def step(self, rate: float, norm: float) -> None:
        """One update at that learning rate, gradients scaled down if their norm is above the limit."""
        clip = self.recipe.clip
        scale = clip / norm if clip and norm > clip else 1.0
        for group in self._adam.param_groups:
            group["lr"] = rate
        if scale != 1.0:
            for parameter in self.mine.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(scale)
        self._adam.step()
        if self._copies is not None:
            for name, parameter in self._parameters.items():
                dist.broadcast(local(parameter.detach()), group_src=self._owner[name], group=self._copies)

    def state(self) -> dict[str, Tensor]:
        """By name; what a checkpoint keeps, and fills in place when it is loaded."""
        for parameter in self.mine.values():
            if parameter not in self._adam.state:
                # What AdamW itself begins with.
                self._adam.state[parameter] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        return {
            f"optimizer.{what}.{name}": value
            for name, parameter in self.mine.items()
            for what, value in self._adam.state[parameter].items()
        }


def _shares(parameters: Mapping[str, Tensor], size: int) -> dict[str, int]:
    """Which copy owns which parameter: the largest first, each to who has least."""
    loads = [0] * size
    owner = {}
    for name in sorted(parameters, key=lambda name: (-parameters[name].numel(), name)):
        owner[name] = loads.index(min(loads))
        loads[owner[name]] += parameters[name].numel()
    return owner
