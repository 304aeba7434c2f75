"""Time, memory and bytes of one stage on its GPUs: formulas, each replaced by the job's profile where it has one."""

from dataclasses import dataclass

from geotrain.cost.efficiency import efficiency
from geotrain.cost.flops import Flops, stage_flops
from geotrain.cost.memory import Memory, boundary_bytes, element_bytes, optimizer_bytes, stage_memory, stage_parameters
from geotrain.plan import Plan
from geotrain.workload import StageProfile


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage of the model (a chunk of a slot, where slots hold several) and one microbatch."""

    forward_s: float
    recompute_s: float
    backward_s: float
    """Both gradients, with whatever selective recompute adds."""
    weight_grad_s: float
    """The part of backward_s that a split backward may postpone."""
    flops: Flops
    parameters: float
    memory: Memory
    gradient_bytes: float
    """For the all-reduce, per slot."""
    optimizer_s: float

    @property
    def input_grad_s(self) -> float:
        """The part of backward_s that the stage before is waiting for."""
        return self.backward_s - self.weight_grad_s


def stage_costs(plan: Plan) -> list[StageCost]:
    """Cost of every stage of the model, through all chunks."""
    return [_stage_cost(plan, stage) for stage in range(len(plan.stages) * plan.interleave)]


def transfer_bytes(plan: Plan) -> float:
    """What crosses each boundary per microbatch and direction."""
    measured = plan.job.profile.boundary_bytes
    return boundary_bytes(plan.job) if measured is None else measured


def _stage_cost(plan: Plan, stage: int) -> StageCost:
    job, chunks, slots = plan.job, plan.interleave, len(plan.stages)
    slot = stage % slots
    layers = plan.stages[slot].layers / chunks
    is_first, is_last = stage == 0, stage == slots * chunks - 1
    gpu = plan.datacenter_of(slot).gpu
    measured = job.profile.of_stage(slot)
    flops = stage_flops(job, layers, is_last=is_last)
    rate = gpu.peak_flops(job.precision) * plan.tensor_parallel * efficiency(job, plan.tensor_parallel)
    forward, recompute, backward, weight_grad = _times(job.recompute == "selective", flops, rate, measured, chunks)
    parameters = stage_parameters(job, layers, is_first=is_first, is_last=is_last)
    per_weight = 2 * element_bytes(job) + 2 * optimizer_bytes(job)
    update = parameters / plan.tensor_parallel * per_weight / gpu.memory_bandwidth
    profile = job.profile
    return StageCost(
        forward_s=forward,
        recompute_s=recompute,
        backward_s=backward,
        weight_grad_s=weight_grad,
        flops=flops,
        parameters=parameters,
        memory=_memory(plan, layers, measured, is_first=is_first, is_last=is_last),
        gradient_bytes=_or(profile.gradient_bytes, parameters * element_bytes(job) * chunks) / chunks,
        optimizer_s=_or(profile.optimizer_s, update * chunks) / chunks,
    )


def _times(
    selective: bool, flops: Flops, rate: float, measured: StageProfile, chunks: int
) -> tuple[float, float, float, float]:
    """Forward, recompute, backward, weight gradient. What is not measured keeps its proportion to what is."""
    forward = flops.forward / rate
    recompute = flops.recompute / rate
    backward = (flops.input_gradient + flops.weight_gradient + (flops.attention if selective else 0.0)) / rate
    weight_share = flops.weight_gradient / rate / backward if backward else 0.5
    if measured.forward_s is not None:
        scale = measured.forward_s / chunks / forward if forward else 1.0
        forward, recompute, backward = measured.forward_s / chunks, recompute * scale, backward * scale
    recompute = _or(measured.recompute_s, recompute * chunks) / chunks
    backward = _or(measured.backward_s, backward * chunks) / chunks
    weight_grad = _or(measured.weight_grad_s, backward * weight_share * chunks) / chunks
    return forward, recompute, backward, min(weight_grad, backward)


def _memory(plan: Plan, layers: float, measured: StageProfile, *, is_first: bool, is_last: bool) -> Memory:
    formula = stage_memory(
        plan.job,
        layers,
        is_first=is_first,
        is_last=is_last,
        tensor_parallel=plan.tensor_parallel,
        sequence_parallel=plan.sequence_parallel,
    )
    chunks = plan.interleave
    return Memory(
        static_bytes=_or(measured.static_bytes, formula.static_bytes * chunks) / chunks,
        activation_bytes=_or(measured.activation_bytes, formula.activation_bytes * chunks) / chunks,
        weight_grad_bytes=_or(measured.weight_grad_bytes, formula.weight_grad_bytes * chunks) / chunks,
        recomputed_bytes=min(formula.recomputed_bytes, _or(measured.workspace_bytes, formula.recomputed_bytes)),
        workspace_bytes=_or(measured.workspace_bytes, formula.workspace_bytes),
    )


def _or(measured: float | None, formula: float) -> float:
    return formula if measured is None else measured
