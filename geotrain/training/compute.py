"""Compute for real: the stages of a slot as parts of the model, with torch's autograd."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geotrain.model.cross_entropy import loss
from geotrain.model.linear import Later, deferred_weights
from geotrain.model.llama import Part
from geotrain.workload import Job

Batch = Callable[[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Inputs and targets of a step's microbatch."""


def precision_of(job: Job, device: torch.device) -> torch.dtype:
    """What is computed in; on a CPU always fp32."""
    names = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return names.get(job.precision, torch.float32) if device.type == "cuda" else torch.float32


class TorchCompute:
    """The device of one process. Gradients add up in the parameters over a step's microbatches."""

    def __init__(
        self,
        parts: Mapping[int, Part],
        batch: Batch,
        *,
        tokens_per_step: int,
        device: torch.device,
        parcel: torch.dtype,
        precision: torch.dtype,
    ) -> None:
        self.parts = parts
        self._batch, self._tokens, self._device, self._parcel = batch, tokens_per_step, device, parcel
        self._precision = precision
        self._step = 0
        self._held: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
        self._later: dict[tuple[int, int], Later] = {}
        self._losses: list[Tensor] = []

    def begin(self, step: int) -> None:
        """Forget the gradients of the step before."""
        self._step = step
        self._losses.clear()
        assert not self._held and not self._later
        for part in self.parts.values():
            part.zero_grad(set_to_none=True)

    def loss(self) -> float:
        """This slot's share of the step's mean loss; 0 but on the last stage."""
        return float(torch.stack(self._losses).sum()) if self._losses else 0.0

    def forward(self, stage: int, microbatch: int, given: Tensor | None, *, keep: bool) -> Tensor | None:
        """F."""
        x = self._tokens_of(microbatch, 0) if given is None else given.detach().requires_grad_(keep)
        with torch.set_grad_enabled(keep):
            y = self._run(stage, microbatch, x)
        self._held[stage, microbatch] = x, y if keep else None
        if self.parts[stage].heads:
            self._losses.append(y.detach())
            return None
        return y.detach().to(self._parcel)

    def recompute(self, stage: int, microbatch: int) -> None:
        """R."""
        x, _ = self._held[stage, microbatch]
        if not self.parts[stage].embeds:
            x.requires_grad_()
        self._held[stage, microbatch] = x, self._run(stage, microbatch, x)

    def backward(self, stage: int, microbatch: int, given: Tensor | None) -> Tensor | None:
        """B."""
        x, y = self._held.pop((stage, microbatch))
        assert y is not None, f"stage {stage} has nothing to go back through"
        torch.autograd.backward(y, None if given is None else given.to(y.dtype))
        return None if self.parts[stage].embeds or x.grad is None else x.grad.to(self._parcel)

    def backward_input(self, stage: int, microbatch: int, given: Tensor | None) -> Tensor | None:
        """I."""
        with deferred_weights(self.parts[stage]) as later:
            gradient = self.backward(stage, microbatch, given)
        self._later[stage, microbatch] = later
        return gradient

    def backward_weight(self, stage: int, microbatch: int) -> None:
        """W."""
        self._later.pop((stage, microbatch)).run()

    def settle(self) -> None:
        """On a GPU the host runs ahead; waiting costs microseconds and makes spans true."""
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def _run(self, stage: int, microbatch: int, x: Tensor) -> Tensor:
        part = self.parts[stage]
        with torch.autocast(self._device.type, self._precision, enabled=self._precision != torch.float32):
            y: Tensor = part(x)
        return loss(y, self._tokens_of(microbatch, 1)) / self._tokens if part.heads else y

    def _tokens_of(self, microbatch: int, which: int) -> Tensor:
        return torch.from_numpy(self._batch(self._step, microbatch)[which]).to(self._device)
