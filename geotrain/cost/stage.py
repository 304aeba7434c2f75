"""Time, memory and bytes of one stage on its GPUs: formulas, each replaced by the job's profile where it has one."""

from dataclasses import dataclass, replace

from geotrain.cluster import Gpu
from geotrain.cost.efficiency import PassTimes, Rates, rule_of
from geotrain.cost.flops import Flops, stage_flops
from geotrain.cost.memory import Memory, boundary_bytes, element_bytes, optimizer_bytes, stage_memory, stage_parameters
from geotrain.cost.work import Passes, Share
from geotrain.plan import Plan
from geotrain.workload import Job, Recompute, StageProfile


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage of the model (a chunk of a slot, where slots hold several) and one microbatch."""

    forward_s: float
    recompute_s: float
    backward_s: float
    """Both gradients, with whatever selective or layerwise recompute adds."""
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
    share, chunks, slots = Share.of(plan), plan.interleave, len(plan.stages)
    last = slots * chunks - 1
    costs: dict[object, StageCost] = {}
    of_stage = []
    for stage in range(last + 1):
        slot = stage % slots
        gpu, layers = plan.datacenter_of(slot).gpu, plan.stages[slot].layers / chunks
        is_first, is_last, measured = stage == 0, stage == last, plan.job.profile.of_stage(slot)
        alike = (id(gpu), layers, is_first, is_last, id(measured))
        if alike not in costs:
            costs[alike] = stage_cost(share, gpu, layers, measured, is_first=is_first, is_last=is_last, chunks=chunks)
        of_stage.append(costs[alike])
    return of_stage


def transfer_bytes(job: Job) -> float:
    """What crosses each boundary per microbatch and direction."""
    return _or(job.profile.boundary_bytes, boundary_bytes(job))


def swapped_bytes(job: Job, gradient_bytes: float) -> float:
    """What each end of a pipeline sends the other after a step: the gradients of an embedding that is the head too.

    They are among the `gradient_bytes` of the end's slot, however few a profile says those are.
    """
    tied = job.model.tied_embeddings * job.model.embedding_parameters * element_bytes(job)
    return float(min(tied, gradient_bytes))


def pass_times(rates: Rates, layer: Passes, layers: float, ends: Passes, recompute: Recompute) -> PassTimes:
    """Times of a stage by the formulas; layerwise recompute is part of backward."""
    each = rates.pass_times(layer, launched=True)
    if recompute == "layerwise":
        each = replace(each, backward_s=each.backward_s + each.recompute_s, recompute_s=0.0)
    return each.times(layers) + rates.pass_times(ends, launched=False)


def update_s(share: Share, rates: Rates, gpu: Gpu, parameters: float) -> float:
    """Optimizer: gradient and weight once, its state there and back."""
    per_weight = 2 * element_bytes(share.job) + 2 * optimizer_bytes(share.job)
    return parameters / share.tensor_parallel * per_weight / min(rates.memory, gpu.memory_bandwidth)


def stage_cost(
    share: Share, gpu: Gpu, layers: float, measured: StageProfile, *, is_first: bool, is_last: bool, chunks: int = 1
) -> StageCost:
    """Cost of a stage with that many layers on that GPU; `measured` speaks of all `chunks` of its slot."""
    job = share.job
    rates = Rates.of(gpu, job.precision, rule_of(job))
    ends = share.ends(is_first=is_first, is_last=is_last)
    times = _measured(pass_times(rates, share.layer, layers, ends, job.recompute), measured, chunks)
    parameters = stage_parameters(job, layers, is_first=is_first, is_last=is_last)
    update = update_s(share, rates, gpu, parameters)
    profile = job.profile
    return StageCost(
        forward_s=times.forward_s,
        recompute_s=times.recompute_s,
        backward_s=times.backward_s,
        weight_grad_s=times.weight_grad_s,
        flops=stage_flops(job, layers, is_last=is_last),
        parameters=parameters,
        memory=_memory(share, layers, measured, chunks, is_first=is_first, is_last=is_last),
        gradient_bytes=_or(profile.gradient_bytes, parameters * element_bytes(job) * chunks) / chunks,
        optimizer_s=_or(profile.optimizer_s, update * chunks) / chunks,
    )


def _measured(formula: PassTimes, measured: StageProfile, chunks: int) -> PassTimes:
    """What is not measured keeps its proportion to what is."""
    forward, recompute, backward = formula.forward_s, formula.recompute_s, formula.backward_s
    weight_share = formula.weight_grad_s / backward if backward else 0.5
    if measured.forward_s is not None:
        scale = measured.forward_s / chunks / forward if forward else 1.0
        forward, recompute, backward = measured.forward_s / chunks, recompute * scale, backward * scale
    recompute = _or(measured.recompute_s, recompute * chunks) / chunks
    backward = _or(measured.backward_s, backward * chunks) / chunks
    weight_grad = _or(measured.weight_grad_s, backward * weight_share * chunks) / chunks
    return PassTimes(
        forward_s=forward, recompute_s=recompute, backward_s=backward, weight_grad_s=min(weight_grad, backward)
    )


def _memory(
    share: Share, layers: float, measured: StageProfile, chunks: int, *, is_first: bool, is_last: bool
) -> Memory:
    formula = stage_memory(
        share.job,
        layers,
        is_first=is_first,
        is_last=is_last,
        tensor_parallel=share.tensor_parallel,
        sequence_parallel=share.sequence_parallel,
    )
    return Memory(
        static_bytes=_or(measured.static_bytes, formula.static_bytes * chunks) / chunks,
        activation_bytes=_or(measured.activation_bytes, formula.activation_bytes * chunks) / chunks,
        weight_grad_bytes=_or(measured.weight_grad_bytes, formula.weight_grad_bytes * chunks) / chunks,
        recomputed_bytes=min(formula.recomputed_bytes, _or(measured.workspace_bytes, formula.recomputed_bytes)),
        workspace_bytes=_or(measured.workspace_bytes, formula.workspace_bytes),
    )


def _or(measured: float | None, formula: float) -> float:
    return formula if measured is None else measured
