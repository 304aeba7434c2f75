"""What a job's stages take on this device: the trainer's own compute and optimizer on random tokens, timed and weighed.

Figures are of one GPU of a slot; a slot of several is measured by as many processes together.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import parallelize_module

from geotrain.cost.memory import stage_memory, stage_parameters
from geotrain.errors import DoesNotFitError, InputError
from geotrain.model import Config, Part, tensor_parallel_plan
from geotrain.plan import Plan
from geotrain.training.compute import TorchCompute, precision_of
from geotrain.training.gradients import local
from geotrain.training.optimizer import Optimizer, Recipe
from geotrain.training.slot import TorchSlot, parameters_of
from geotrain.units import format_bytes
from geotrain.workload import Job, Profile, StageProfile

_WARM_UP = 2
_WEIGHT_BYTES = 16
"""A weight, its gradient and AdamW's two averages, in fp32."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A stage of the model."""

    layers: int
    embeds: bool
    heads: bool


Chunks = tuple[Cut, ...]
"""What a slot holds: one stage, or several of an interleaved plan."""


def slots_of(plan: Plan) -> list[Chunks]:
    """Slot by slot."""
    slots, chunks = len(plan.stages), plan.interleave
    last = slots * chunks - 1
    return [
        tuple(
            Cut(layers=stage.layers // chunks, embeds=number == 0, heads=number == last)
            for number in range(slot, last + 1, slots)
        )
        for slot, stage in enumerate(plan.stages)
    ]


def slot_of(job: Job, layers: int) -> Chunks:
    """A stage of so many layers: the whole model with embedding and head, or some from its middle."""
    most = job.model.layers
    if not 1 <= layers <= most:
        raise InputError(f"--layers is {layers} and must be 1 to {most}, the layers of the model {job.model.name!r}")
    return (Cut(layers=layers, embeds=layers == most, heads=layers == most),)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one slot."""

    chunks: Chunks
    times_s: dict[str, list[float]]
    """Of each pass over a microbatch and of the optimizer's update, by the profile's names; `input_grad_s` besides."""
    static_bytes: int
    activation_bytes: int
    workspace_bytes: int | None
    """None where nothing is recomputed: the formula's."""
    gradient_bytes: int

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
            recompute_s=self.median_s("recompute_s"),
            backward_s=backward_s,
            weight_grad_s=min(backward_s, self.median_s("weight_grad_s")),
            static_bytes=self.static_bytes,
            activation_bytes=self.activation_bytes,
            workspace_bytes=self.workspace_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Of a job on this device."""

    figures: dict[int, Figures]
    """By the slots' numbers."""
    profile: Profile


def measure_job(
    job: Job, layers: int | None, *, device: torch.device, repeat: int, mesh: DeviceMesh | None = None
) -> Measurement:
    """One entry for all stages, of so many layers each."""
    (figures,) = _measure_all(job, [slot_of(job, layers or job.model.layers)], device, repeat, mesh)
    return Measurement(figures={0: figures}, profile=_profile(job, [figures], figures.stage(), device))


def measure_plan(
    plan: Plan, old: Profile, dc: str | None, *, device: torch.device, repeat: int, mesh: DeviceMesh | None = None
) -> Measurement:
    """An entry for every stage; those of other data centers than `dc`, if it is given, keep what the old profile has."""
    entries = list(old.stage) if isinstance(old.stage, list) else [old.stage] * len(plan.stages)
    here = [slot for slot, stage in enumerate(plan.stages) if dc in (None, stage.dc)]
    if not here:
        homes = ", ".join(dict.fromkeys(stage.dc for stage in plan.stages))
        raise InputError(f"--dc is {dc!r} and must be a data center with stages of the plan: {homes}")
    if len(entries) != len(plan.stages) and len(here) < len(plan.stages):
        raise InputError(
            f"the job's profile has {len(entries)} stages and the plan {len(plan.stages)}: without --dc all are measured"
        )
    slots = slots_of(plan)
    measured = _measure_all(plan.job, [slots[slot] for slot in here], device, repeat, mesh)
    figures = dict(zip(here, measured, strict=True))
    stages = [figures[slot].stage() if slot in figures else entries[slot] for slot in range(len(slots))]
    return Measurement(figures=figures, profile=_profile(plan.job, measured, stages, device))


def _measure_all(
    job: Job, slots: Sequence[Chunks], device: torch.device, repeat: int, mesh: DeviceMesh | None
) -> list[Figures]:
    """Those that are alike are measured once."""
    for chunks in dict.fromkeys(slots):
        check(job, chunks, device=device, parallel=1 if mesh is None else mesh.size())
    measured = {
        chunks: measure(job, chunks, device=device, repeat=repeat, mesh=mesh) for chunks in dict.fromkeys(slots)
    }
    return [measured[chunks] for chunks in slots]


def _profile(
    job: Job, figures: Sequence[Figures], stage: StageProfile | list[StageProfile], device: torch.device
) -> Profile:
    """What a profile has once for all stages is the largest of them."""
    size = precision_of(job, device).itemsize
    return Profile(
        stage=stage,
        boundary_bytes=job.microbatch * job.sequence * job.model.hidden * size,
        gradient_bytes=max(one.gradient_bytes for one in figures),
        optimizer_s=max(one.median_s("optimizer_s") for one in figures),
    )


def check(job: Job, chunks: Chunks, *, device: torch.device, parallel: int = 1) -> None:
    """DoesNotFitError if this device has not the memory, by the formulas; InputError if the trainer could not run it."""
    if job.recompute in ("layerwise", "selective"):
        raise InputError(f"recompute is {job.recompute!r} and must be full (true) or none (false), as for training")
    if job.model.heads % parallel or job.model.kv_heads % parallel:
        raise InputError(
            f"{parallel} processes share a stage and must divide the model's {job.model.heads} heads "
            f"and {job.model.kv_heads} key-value heads"
        )
    free, needed = _free_bytes(device), _needed_bytes(job, chunks, device, parallel)
    if needed <= free:
        return
    layers = sum(cut.layers for cut in chunks)
    fits = next(
        (n for n in range(layers - 1, 0, -1) if _needed_bytes(job, slot_of(job, n), device, parallel) <= free), None
    )
    rather = f"give the job file and --layers {fits}" if fits else "not even one layer fits"
    raise DoesNotFitError(
        f"a stage of {layers} layers takes about {format_bytes(needed)} to measure, and {format_bytes(free)} are free "
        f"on this device: {rather}"
    )


def _needed_bytes(job: Job, chunks: Chunks, device: torch.device, parallel: int) -> float:
    passing = {"precision": job.precision if device.type == "cuda" else "fp32", "recompute": "none"}
    job, needed = job.model_copy(update=passing), 0.0
    for cut in chunks:
        ends = {"is_first": cut.embeds, "is_last": cut.heads}
        memory = stage_memory(job, cut.layers, **ends, tensor_parallel=parallel, sequence_parallel=False)
        weights = stage_parameters(job, cut.layers, **ends) / parallel
        needed += _WEIGHT_BYTES * weights + memory.activation_bytes + memory.workspace_bytes
    return needed


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = Path("/proc/meminfo")
    if not known.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    kibibytes = next(line.split()[1] for line in known.read_text().splitlines() if line.startswith("MemAvailable"))
    return int(kibibytes) << 10


def measure(job: Job, chunks: Chunks, *, device: torch.device, repeat: int, mesh: DeviceMesh | None = None) -> Figures:
    """Run microbatches through the slot; with a mesh its processes do this together."""
    return _Bench(job, chunks, device, mesh).figures(repeat)


class _Bench:
    def __init__(self, job: Job, chunks: Chunks, device: torch.device, mesh: DeviceMesh | None) -> None:
        self._recomputes, self._chunks = job.recompute == "full", chunks
        config = Config.of(job.model, sequence=job.sequence)
        parts, first = {}, 0
        for number, cut in enumerate(chunks):
            part = Part(config, first=first, last=first + cut.layers, embeds=cut.embeds, heads=cut.heads)
            part.initialize(0)
            part.to(device)
            if mesh is not None:
                parallelize_module(part, mesh, tensor_parallel_plan(part))
            parts[number], first = part, first + cut.layers
        shape, precision = (job.microbatch, job.sequence), precision_of(job, device)
        self._tokens = np.random.default_rng(0).integers(job.model.vocab, size=shape)
        drawn = torch.randn(*shape, job.model.hidden, generator=torch.Generator().manual_seed(0))
        self._hidden = drawn.to(device, precision)
        self._compute = TorchCompute(
            parts,
            lambda step, microbatch: (self._tokens, self._tokens),
            tokens_per_step=self._tokens.size,
            device=device,
            parcel=precision,
            precision=precision,
        )
        self._parameters = parameters_of(parts)
        self._optimizer = Optimizer(self._parameters, Recipe())
        part_of_slot = 0 if mesh is None else mesh.get_local_rank()
        self._slot = TorchSlot(self._compute, self._optimizer, copies=None, ends=None, counts=True, part=part_of_slot)
        self._compute.begin(0)

    def figures(self, repeat: int) -> Figures:
        rounds = [self._round() for _ in range(_WARM_UP + repeat)][_WARM_UP:]
        held = [self._held(stage) for stage in self._compute.parts]
        inputs = [self._tokens.nbytes if part.embeds else self._hidden.nbytes for part in self._compute.parts.values()]
        state = [*self._parameters.values(), *self._optimizer.state().values()]
        gradients = [parameter.grad for parameter in self._parameters.values() if parameter.grad is not None]
        return Figures(
            chunks=self._chunks,
            times_s={name: [times[name] for times in rounds] for name in rounds[0]},
            static_bytes=sum(local(tensor).nbytes for tensor in (*state, *gradients)),
            activation_bytes=sum(inputs if self._recomputes else held),
            workspace_bytes=max(map(int.__sub__, held, inputs)) if self._recomputes else None,
            gradient_bytes=sum(gradient.nbytes for gradient in gradients),
        )

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
        self._slot.update(0.0, self._slot.squared_norm() ** 0.5)

    def _ends(self, part: Part) -> tuple[Tensor | None, Tensor | None]:
        return None if part.embeds else self._hidden, None if part.heads else self._hidden

    def _held(self, stage: int) -> int:
        """Bytes kept from a forward to its backward: what autograd has saved but for the weights, input and output."""
        part = self._compute.parts[stage]
        given, back = self._ends(part)
        kept: list[Tensor] = []

        def keep(tensor: Tensor) -> Tensor:
            kept.append(tensor)
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            made = self._compute.forward(stage, 0, given, keep=True)
        storages = [local(tensor).untyped_storage() for tensor in (*kept, given, made) if tensor is not None]
        weights = {local(parameter).untyped_storage().data_ptr() for parameter in part.parameters()}
        self._compute.backward(stage, 0, back)
        return sum({s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in weights}.values())
