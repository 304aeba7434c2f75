"""What a process brings to a run, before any network: model, data, groups of its data center."""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.tensor.parallel import parallelize_module

from geotrain.cost import StageCost, stage_costs, swapped_bytes, transfer_bytes
from geotrain.device import Device
from geotrain.model import Config, weights
from geotrain.model.llama import Part, tensor_parallel_plan
from geotrain.plan import Plan
from geotrain.seating import Seat, Seating
from geotrain.tokens import Batches, Dataset
from geotrain.training.compute import TorchCompute, precision_of
from geotrain.training.control import Control
from geotrain.training.gradients import TiedEnds
from geotrain.training.learner import EmulatedLearner, Learner, TorchLearner, parameters_of
from geotrain.training.leaving import Leaving
from geotrain.training.optimizer import Optimizer
from geotrain.training.options import Options
from geotrain.training.post import ParcelForm, Shared
from geotrain.training.script import Script
from geotrain.training.wiring import Wiring
from geotrain.transport import Channel


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Of torch.distributed, inside the data center; None where a process is alone in one."""

    mesh: DeviceMesh
    """Stages here x pipelines x GPUs of a slot, in the order of ranks."""
    copies: dist.ProcessGroup | None
    """Who holds the same weights."""
    slot: dist.ProcessGroup | None
    """Who shares a stage."""

    @classmethod
    def make(cls, seating: Seating, seat: Seat, device: torch.device, *, deadline_s: float) -> "Groups":
        """All ranks of the data center do this together."""
        world, pipelines, width = seating.world(seat.dc), seating.plan.num_pipelines, seating.plan.tensor_parallel
        shape = len(world) // (pipelines * width), pipelines, width
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=("stage", "pipeline", "part"))
        for group in mesh.get_all_groups():
            # A mesh makes its groups with torch's own patience, half an hour.
            _set_pg_timeout(timedelta(seconds=deadline_s), group)
        copies, slot = (mesh.get_group(name) for name in ("pipeline", "part"))
        return cls(mesh=mesh, copies=copies if pipelines > 1 else None, slot=slot if width > 1 else None)


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """Everything but the lines to others."""

    plan: Plan
    options: Options
    seating: Seating
    seat: Seat
    device: torch.device
    stages: list[int]
    """Of the model, counted through all chunks."""
    last: int
    groups: Groups
    form: ParcelForm
    batches: Batches | None

    @property
    def shared(self) -> Shared | None:
        """How the GPUs of a slot share what comes over the WAN."""
        if self.groups.slot is None:
            return None
        across = [s for s in range(len(self.plan.stages)) if self.plan.crosses_wan(self.seat.stage, s)]
        return Shared(self.groups.slot, self.seat.part, self.form, across)

    def learner(self, control: Control, wiring: Wiring, leaving: Leaving) -> Learner:
        """Build the stages; all processes do this together."""
        if self.batches is None:
            costs = dict(enumerate(stage_costs(self.plan)))
            return EmulatedLearner(
                {stage: costs[stage] for stage in self.stages},
                last=self.last,
                parcel_bytes=self.form.shape[0],
                copies=self.groups.copies,
                ends=self._emulated_ends(list(costs.values()), control, wiring, leaving),
                device=Device(self.options.devices, self.seat.name, deadline_s=self.options.deadline_s),
            )
        parts = self._parts()
        options, batches, pipeline = self.options, self.batches, self.seat.pipeline
        compute = TorchCompute(
            parts,
            lambda step, microbatch: batches.batch(step, pipeline, microbatch),
            tokens_per_step=self.plan.tokens_per_step,
            device=self.device,
            parcel=self.form.dtype,
            precision=precision_of(self.plan.job, self.device),
        )
        optimizer = Optimizer(parameters_of(parts), options.recipe, copies=self.groups.copies, sharded=options.sharded)
        return TorchLearner(
            compute,
            optimizer,
            copies=self.groups.copies,
            ends=self._ends(_tied_end(parts), control, wiring, leaving),
            counts=pipeline == 0,
            part=self.seat.part,
        )

    def _parts(self) -> dict[int, Part]:
        parts = {stage: self._part(stage) for stage in self.stages}
        first, last = parts.get(0), parts.get(self.last)
        if first is not None and last is not None and first.tied_end is not None:
            # Both ends of a tied head in one slot, as chunks: they share the parameter itself.
            last.lm_head.weight = first.tied_end
        return parts

    def _part(self, stage: int) -> Part:
        slots, chunks = len(self.plan.stages), self.plan.interleave
        layers = [self.plan.stages[s % slots].layers // chunks for s in range(slots * chunks)]
        first = sum(layers[:stage])
        config = Config.of(self.plan.job.model, sequence=self.plan.job.sequence)
        part = Part(config, first=first, last=first + layers[stage], embeds=stage == 0, heads=stage == self.last)
        if self.options.start is None:
            part.initialize(self.options.seed)
        else:
            weights.load(part, self.options.start)
        part.to(self.device)
        if self.groups.slot is not None:
            parallelize_module(part, self.groups.mesh["part"], tensor_parallel_plan(part))
        return part

    def _emulated_ends(
        self, costs: list[StageCost], control: Control, wiring: Wiring, leaving: Leaving
    ) -> TiedEnds | None:
        """The same with as many zeros as the simulator lets the ends swap."""
        slots = len(self.plan.stages)
        gradients = min(sum(cost.gradient_bytes for cost in costs[slot::slots]) for slot in (0, slots - 1))
        numbers = int(swapped_bytes(self.plan.job, gradients)) // 4 // self.plan.tensor_parallel
        if not numbers:
            return None
        end = torch.zeros(numbers) if self.seat.stage in (0, slots - 1) else None
        return self._ends(end, control, wiring, leaving)

    def _ends(self, end: Tensor | None, control: Control, wiring: Wiring, leaving: Leaving) -> TiedEnds | None:
        """Both ends of a tied head; the first pipeline's two are joined, over the WAN if need be."""
        slots = len(self.plan.stages)
        first, last = 0, self.last % slots
        if not self.plan.job.model.tied_embeddings or first == last:
            return None
        across: Channel | int | None = None
        if self.plan.crosses_wan(first, last):
            across = wiring.join_ends(control, first, last, leaving)
        elif self.seat.pipeline == 0 and self.seat.stage in (first, last):
            across = self.seating.at(0, last if self.seat.stage == first else first)[self.seat.part].rank
        if end is None:
            return None
        return TiedEnds(
            end,
            is_first=self.seat.stage == first,
            across=across,
            copies=self.groups.copies,
            job=wiring.identity.job,
            deadline_s=self.options.deadline_s,
        )


def _tied_end(parts: dict[int, Part]) -> Tensor | None:
    """What a slot holds of a tied head, if it holds an end."""
    return next((part.tied_end for part in parts.values() if part.tied_end is not None), None)


def open_batches(plan: Plan, options: Options) -> Batches | None:
    """The data, if any is needed; InputError if the plan's model cannot be trained on it."""
    if options.compute == "emulated":
        return None
    assert options.data is not None
    return Batches(
        Dataset.open(options.data, model_vocab=plan.job.model.vocab),
        sequence=plan.job.sequence,
        microbatch=plan.job.microbatch,
        microbatches=plan.num_microbatches,
        pipelines=plan.num_pipelines,
        seed=options.seed,
    )


def assemble(
    options: Options, seating: Seating, seat: Seat, script: Script, device: torch.device, batches: Batches | None
) -> Assembly:
    """Make the groups; all processes of the data center do this together."""
    plan = seating.plan
    if batches is None:
        form = ParcelForm((int(transfer_bytes(plan.job)),), torch.uint8, torch.device("cpu"))
    else:
        shape = (plan.job.microbatch, plan.job.sequence, plan.job.model.hidden)
        form = ParcelForm(shape, precision_of(plan.job, device), device)
    return Assembly(
        plan=plan,
        options=options,
        seating=seating,
        seat=seat,
        device=device,
        stages=list(range(seat.stage, script.num_model_stages, script.num_stages)),
        last=script.num_model_stages - 1,
        groups=Groups.make(seating, seat, device, deadline_s=options.deadline_s),
        form=form,
        batches=batches,
    )
