"""One slot's stages on this device: the trainer's own compute and optimizer on random tokens, timed and weighed."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import parallelize_module

from geotrain.cost.memory import loss_bytes
from geotrain.model import Config, Part, tensor_parallel_plan
from geotrain.training.compute import TorchCompute, precision_of
from geotrain.training.gradients import local
from geotrain.training.learner import TorchLearner, parameters_of
from geotrain.training.optimizer import Optimizer, Recipe
from geotrain.workload import Job, StageProfile

_WARM_UP = 2


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A stage of the model."""

    layers: int
    embeds: bool
    heads: bool


Chunks = tuple[Cut, ...]
"""What a slot holds: one stage, or several of an interleaved plan."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one GPU of a slot."""

    chunks: Chunks
    times_s: dict[str, list[float]]
    """Of each pass over a microbatch and of the optimizer's update, by the profile's names; `input_grad_s` besides."""
    static_bytes: int
    activation_bytes: int
    workspace_bytes: int | None
    """None where nothing is recomputed: the formula's."""
    gradient_bytes: int
    """Of all the slot's GPUs."""

    @property
    def layers(self) -> int:
        """In all chunks."""
        return sum(cut.layers for cut in self.chunks)

    def median_s(self, name: str) -> float:
        """The middle of the measurements."""
        return float(np.median(self.times_s[name]))

    def spread(self, name: str) -> float:
        """How far apart the middle half of the measurements is, as a share of the median."""
        low, high = np.percentile(self.times_s[name], [25, 75])
        return float((high - low) / self.median_s(name))

    def stage(self) -> StageProfile:
        """The profile's entry."""
        backward_s = self.median_s("backward_s")
        return StageProfile(
            forward_s=self.median_s("forward_s"),
            backward_s=backward_s,
            recompute_s=self.median_s("recompute_s"),
            weight_grad_s=min(backward_s, self.median_s("weight_grad_s")),
            static_bytes=self.static_bytes,
            activation_bytes=self.activation_bytes,
            workspace_bytes=self.workspace_bytes,
        )


class Bench:
    """Holds the slot's stages; with a mesh, its processes share them and do everything together."""

    def __init__(self, job: Job, chunks: Chunks, device: torch.device, mesh: DeviceMesh | None) -> None:
        self._chunks, self._recomputes = chunks, job.recompute == "full"
        shape, precision = (job.microbatch, job.sequence), precision_of(job, device)
        self._tokens = np.random.default_rng(0).integers(job.model.vocab, size=shape)
        hidden = torch.randn(*shape, job.model.hidden, generator=torch.Generator().manual_seed(0))
        self._hidden = hidden.to(device, precision)
        self._compute = TorchCompute(
            _parts(job, chunks, device, mesh),
            lambda step, microbatch: (self._tokens, self._tokens),
            tokens_per_step=self._tokens.size,
            device=device,
            parcel=precision,
            precision=precision,
        )
        self._compute.begin(0)
        self._parameters = parameters_of(self._compute.parts)
        self._optimizer = Optimizer(self._parameters, Recipe())
        part = 0 if mesh is None else mesh.get_local_rank()
        self._learner = TorchLearner(self._compute, self._optimizer, copies=None, ends=None, counts=True, part=part)

    def figures(self, repeat: int) -> Figures:
        """So many measurements, after a few that do not count."""
        rounds = [self._round() for _ in range(_WARM_UP + repeat)][_WARM_UP:]
        held = [self._held(stage) for stage in self._compute.parts]
        inputs = [self._tokens.nbytes if cut.embeds else self._hidden.nbytes for cut in self._chunks]
        state = [*self._parameters.values(), *self._optimizer.state().values()]
        gradients = [parameter.grad for parameter in self._parameters.values() if parameter.grad is not None]
        return Figures(
            chunks=self._chunks,
            times_s={name: [times_s[name] for times_s in rounds] for name in rounds[0]},
            static_bytes=sum(local(tensor).nbytes for tensor in (*state, *gradients)),
            activation_bytes=sum(inputs if self._recomputes else held),
            workspace_bytes=int(max(map(self._back, self._compute.parts.values(), held, inputs)))
            if self._recomputes
            else None,
            gradient_bytes=sum(gradient.nbytes for gradient in gradients),
        )

    def _back(self, part: Part, held: int, given: int) -> float:
        """Bytes that recompute brings back, and what the loss needs beside the logits, which are among them."""
        if not part.heads:
            return held - given
        words = part.config.vocab_size if part.shares else local(part.lm_head.weight).shape[0]
        tokens, size = self._tokens.size, self._hidden.itemsize
        return held - given + loss_bytes(tokens, words, size) - tokens * words * size

    def _round(self) -> dict[str, float]:
        """A microbatch with recompute and a whole backward, one with a split backward, and an update."""
        compute, spent = self._compute, defaultdict[str, float](float)
        for stage, part in compute.parts.items():
            given, back = self._ends(part)
            # Where a forward's own backward comes next, as on the last stage, it keeps what it computes.
            keeps = part.heads or not self._recomputes
            for keep in (False, True):
                forward_s = self._timed(compute.forward, stage, 0, given, keep=keep)
                spent["forward_s"] += forward_s if keep == keeps else 0.0
                if keep:
                    spent["input_grad_s"] += self._timed(compute.backward_input, stage, 0, back)
                    spent["weight_grad_s"] += self._timed(compute.backward_weight, stage, 0)
                else:
                    spent["recompute_s"] += self._timed(compute.recompute, stage, 0)
                    spent["backward_s"] += self._timed(compute.backward, stage, 0, back)
        spent["optimizer_s"] = self._timed(self._update)
        return dict(spent)

    def _timed(self, work: Callable[..., object], *given: object, **choice: bool) -> float:
        start_s = time.perf_counter()
        work(*given, **choice)
        self._compute.settle()
        return time.perf_counter() - start_s

    def _update(self) -> None:
        """At a rate of 0, which takes as long as any other."""
        self._learner.update(0.0, self._learner.squared_norm() ** 0.5)

    def _ends(self, part: Part) -> tuple[Tensor | None, Tensor | None]:
        return None if part.embeds else self._hidden, None if part.heads else self._hidden

    def _held(self, stage: int) -> int:
        """Bytes kept from a forward to its backward: input, output and what autograd has saved but for the weights."""
        part = self._compute.parts[stage]
        given, back = self._ends(part)
        kept: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            kept.append(tensor)
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            made = self._compute.forward(stage, 0, given, keep=True)
        storages = [_storage(tensor) for tensor in (*kept, given, made) if tensor is not None]
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
        weights = {_storage(parameter).data_ptr() for parameter in part.parameters()}
        self._compute.backward(stage, 0, back)
        return sum(size for place, size in sizes.items() if place not in weights)


def _parts(job: Job, chunks: Chunks, device: torch.device, mesh: DeviceMesh | None) -> dict[int, Part]:
    config, first = Config.of(job.model, sequence=job.sequence), 0
    parts = {}
    for stage, cut in enumerate(chunks):
        part = Part(config, first=first, last=first + cut.layers, embeds=cut.embeds, heads=cut.heads)
        part.initialize(0)
        part.to(device)
        if mesh is not None:
            parallelize_module(part, mesh, tensor_parallel_plan(part))
        parts[stage], first = part, first + cut.layers
    return parts


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    """Of the plain tensor inside one that is distributed or still on its way."""
    while hasattr(tensor, "__tensor_flatten__"):
        (name, *_), _ = tensor.__tensor_flatten__()
        tensor = getattr(tensor, name)
    return tensor.untyped_storage()
