"""What a process holds: the stages of its slot, their gradients and optimizer; or, emulated, only their times."""

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from geotrain.cost import StageCost
from geotrain.device import Device
from geotrain.model.llama import EMBEDDING, Part, stored_name
from geotrain.training.compute import TorchCompute
from geotrain.training.emulated import EmulatedCompute
from geotrain.training.executor import Compute
from geotrain.training.gradients import TiedEnds, all_reduce, complete, squared_norm
from geotrain.training.optimizer import Optimizer


class Learner(Protocol):
    """What a process does in a step besides its actions."""

    @property
    def compute(self) -> Compute[Tensor]:
        """What the executor plays on."""

    def begin(self, step: int) -> None:
        """Before the first action."""

    def reduce(self) -> None:
        """After the last action: sum gradients over the copies of the stages."""

    def loss(self) -> float:
        """This process's share of the step's mean loss."""

    def squared_norm(self) -> float:
        """This process's share of the gradients' squared norm, all pipelines' copies counted once."""

    def update(self, rate: float, norm: float) -> None:
        """Change the weights."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, by names that no layout changes."""


class TorchLearner:
    """Real stages."""

    def __init__(
        self,
        compute: TorchCompute,
        optimizer: Optimizer,
        *,
        copies: dist.ProcessGroup | None,
        ends: TiedEnds | None,
        counts: bool,
        part: int,
    ) -> None:
        self.compute = compute
        self._optimizer, self._copies, self._ends = optimizer, copies, ends
        self._counts, self._part = counts, part

    def begin(self, step: int) -> None:
        """Forget the gradients of the step before."""
        self.compute.begin(step)

    def reduce(self) -> None:
        """Over the slot's GPUs, then over the copies, then over the two ends of a tied head."""
        parameters = list(parameters_of(self.compute.parts).values())
        complete(parameters)
        if self._copies is not None:
            all_reduce(parameters, self._copies)
        if self._ends is not None:
            self._ends.sum()

    def loss(self) -> float:
        """Only the last stage has one, and all GPUs of a slot have the same."""
        return self.compute.loss() if self._part == 0 else 0.0

    def squared_norm(self) -> float:
        """Of the first pipeline's copy; of a tied head's two ends, the embedding counts."""
        if not self._counts:
            return 0.0
        parts = self.compute.parts
        embeds = any(part.embeds for part in parts.values())
        counted = [p for name, p in parameters_of(parts).items() if embeds or name != EMBEDDING]
        return squared_norm(counted, part=self._part)

    def update(self, rate: float, norm: float) -> None:
        """One optimizer step."""
        self._optimizer.step(rate, norm)
        self.compute.settle()

    def state(self) -> dict[str, Tensor]:
        """Weights and what the optimizer keeps here."""
        weights = {name: parameter.detach() for name, parameter in parameters_of(self.compute.parts).items()}
        return weights | self._optimizer.state()


def parameters_of(parts: Mapping[int, Part]) -> dict[str, Tensor]:
    """All parameters of a slot by the names under which they are kept: a tied head goes by the embedding's."""
    named = [(part.config, *entry) for part in parts.values() for entry in part.named_parameters()]
    return {stored_name(config, name): parameter for config, name, parameter in named}


class EmulatedLearner:
    """Stages that only take their time; gradients are bytes, and there is nothing to keep."""

    def __init__(
        self,
        costs: dict[int, StageCost],
        *,
        last: int,
        parcel_bytes: int,
        copies: dist.ProcessGroup | None,
        ends: TiedEnds | None,
        device: Device,
    ) -> None:
        self.compute = EmulatedCompute(costs, last=last, parcel_bytes=parcel_bytes, device=device)
        self._copies, self._ends, self._device = copies, ends, device
        self._gradients = torch.zeros(int(sum(cost.gradient_bytes for cost in costs.values())) // 4)
        self._optimizer_s = sum(cost.optimizer_s for cost in costs.values())

    def begin(self, step: int) -> None:
        """Nothing to forget."""

    def reduce(self) -> None:
        """Real bytes over the data center's network, and between the two ends of a tied head."""
        if self._copies is not None and len(self._gradients):
            dist.all_reduce(self._gradients, group=self._copies)
        if self._ends is not None:
            self._ends.sum()

    def loss(self) -> float:
        """None is computed."""
        return 0.0

    def squared_norm(self) -> float:
        """None is computed."""
        return 0.0

    def update(self, rate: float, norm: float) -> None:
        """Takes its time."""
        self._device.hold(self._optimizer_s)

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}
