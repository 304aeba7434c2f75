"""A job's profile, measured on this device: which stages are measured, whether they fit, and what the profile says."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.device_mesh import DeviceMesh

from geotrain.cost.memory import stage_memory, stage_parameters
from geotrain.errors import DoesNotFitError, InputError
from geotrain.plan import Plan
from geotrain.runnable import why_no_plan_is_runnable
from geotrain.training.bench import Bench, Chunks, Cut, Figures
from geotrain.training.compute import precision_of
from geotrain.units import format_bytes, plural
from geotrain.workload import Job, Profile, StageProfile

_WEIGHT_BYTES = 16
"""A weight, its gradient and AdamW's two averages, in fp32."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Of a job on this device."""

    figures: dict[int, Figures]
    """By the slots' numbers."""
    profile: Profile


@dataclass(frozen=True, kw_only=True)
class Profiler:
    """Measures on one device; with a mesh its processes do so together, each with its share of a stage."""

    device: torch.device
    repeat: int
    mesh: DeviceMesh | None = None

    def job(self, job: Job, layers: int) -> Measurement:
        """One entry for all stages, of so many layers each."""
        (figures,) = self._measure(job, [slot_of(job, layers)])
        return Measurement(figures={0: figures}, profile=self._profile(job, [figures], figures.stage()))

    def plan(self, plan: Plan, old: Profile, dc: str | None) -> Measurement:
        """An entry for every stage; with a `dc`, those of other data centers keep what the old profile has."""
        entries = list(old.stage) if isinstance(old.stage, list) else [old.stage] * len(plan.stages)
        here = [slot for slot, stage in enumerate(plan.stages) if dc in (None, stage.dc)]
        if not here:
            homes = ", ".join(dict.fromkeys(stage.dc for stage in plan.stages))
            raise InputError(f"--dc is {dc!r} and must be a data center with stages of the plan: {homes}")
        if len(here) < len(plan.stages) and len(entries) != len(plan.stages):
            raise InputError(
                f"the job's profile has {plural(len(entries), 'stage')} and the plan has {len(plan.stages)}: "
                "measure without --dc"
            )
        slots = slots_of(plan)
        measured = self._measure(plan.job, [slots[slot] for slot in here])
        figures = dict(zip(here, measured, strict=True))
        stages = [figures[slot].stage() if slot in figures else entries[slot] for slot in range(len(slots))]
        return Measurement(figures=figures, profile=self._profile(plan.job, measured, stages))

    def _measure(self, job: Job, slots: Sequence[Chunks]) -> list[Figures]:
        """Those that are alike are measured once."""
        distinct = dict.fromkeys(slots)
        for chunks in distinct:
            self._check(job, chunks)
        measured = {chunks: Bench(job, chunks, self.device, self.mesh).figures(self.repeat) for chunks in distinct}
        return [measured[chunks] for chunks in slots]

    def _profile(self, job: Job, figures: Sequence[Figures], stage: StageProfile | list[StageProfile]) -> Profile:
        """What a profile has once for all stages is the largest of them."""
        return Profile(
            stage=stage,
            boundary_bytes=job.microbatch * job.sequence * job.model.hidden * precision_of(job, self.device).itemsize,
            gradient_bytes=max(one.gradient_bytes for one in figures),
            optimizer_s=max(one.median_s("optimizer_s") for one in figures),
        )

    def _check(self, job: Job, chunks: Chunks) -> None:
        """InputError if the trainer could not run it, DoesNotFitError if there is not the memory for it here."""
        # As for emulated runs: what cannot be trained for its precision can still be measured.
        if reasons := why_no_plan_is_runnable(job, emulated=True):
            raise InputError("; ".join(reasons))
        model, parallel = job.model, 1 if self.mesh is None else self.mesh.size()
        if model.heads % parallel or model.kv_heads % parallel:
            heads = f"{model.heads} heads and {model.kv_heads} key-value heads"
            raise InputError(f"{parallel} processes share a stage and must divide the model's {heads}")

        def needed_bytes(chunks: Chunks) -> float:
            return sum(_needed_bytes(job, cut, parallel, self.device) for cut in chunks)

        free, layers = free_bytes(self.device), sum(cut.layers for cut in chunks)
        if needed_bytes(chunks) > free:
            fit = next((n for n in range(layers - 1, 0, -1) if needed_bytes(slot_of(job, n)) <= free), None)
            raise DoesNotFitError(
                f"a stage of {plural(layers, 'layer')} takes about {format_bytes(needed_bytes(chunks))} to measure, "
                f"and {format_bytes(free)} are free on this device: "
                + (f"give the job and --layers {fit}" if fit else "not even one layer fits")
            )


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


def _needed_bytes(job: Job, cut: Cut, parallel: int, device: torch.device) -> float:
    """Weights with all that belongs to them, and one microbatch's activations."""
    passing = {"precision": job.precision if device.type == "cuda" else "fp32", "recompute": "none"}
    job, ends = job.model_copy(update=passing), {"is_first": cut.embeds, "is_last": cut.heads}
    memory = stage_memory(job, cut.layers, **ends, tensor_parallel=parallel, sequence_parallel=False)
    weights = stage_parameters(job, cut.layers, **ends) / parallel
    return _WEIGHT_BYTES * weights + memory.activation_bytes + memory.workspace_bytes


def free_bytes(device: torch.device) -> int:
    """Memory that is left on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = Path("/proc/meminfo")
    if not known.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    kibibytes = next(line.split()[1] for line in known.read_text().splitlines() if line.startswith("MemAvailable"))
    return int(kibibytes) << 10
