"""A job that fits nowhere, in one sentence: how near it came, on which GPU, and what would make it fit."""

from collections.abc import Callable, Iterator, Sequence

from geotrain.cluster import GPUS, Cluster, Datacenter
from geotrain.plan import memory_words
from geotrain.planner.fit import Tightest, tightest
from geotrain.units import format_bytes
from geotrain.workload import Job, Model

_FITS = "memory is not the reason"
_MOST_CHANGES = 3
_WIDTHS = (2, 4, 8)


def closest(cluster: Cluster, job: Job) -> str:
    """One sentence about a job for which no plan was found."""
    if not any(dc.num_gpus for dc in cluster.datacenters):
        return "the cluster has no GPUs"
    usable = [dc for dc in cluster.datacenters if dc.num_gpus and dc.gpu.computes(job.precision)]
    if not usable:
        kinds = ", ".join(dict.fromkeys(dc.gpu.name for dc in cluster.datacenters))
        return f"no GPU of the cluster computes in {job.precision}: there are {kinds}"
    stage = tightest(usable, job)
    if stage.fill <= 1:
        layout = f"{_stages(stage.num_stages)} with tensor_parallel {stage.tensor_parallel}"
        return f"{_FITS}: {layout} would fit"
    changes = list(_changes(usable, job, stage))[:_MOST_CHANGES]
    would = f"what would make it fit: {', or '.join(changes)}" if changes else "no single change would make it fit"
    return f"closest: {_describe(stage)}; {would}"


def no_room(cluster: Cluster, job: Job, model: Model, tensor_parallel: int, room_bytes: float) -> str:
    """One sentence about a job that leaves no room for prefill of a model, even on the widest slots."""
    alone = closest(cluster, job)
    fits = "the job alone would fit" if alone.startswith(_FITS) else f"nor does the job alone fit: {alone}"
    return (
        f"no plan leaves room for {model.name}, which takes {format_bytes(room_bytes)} of each GPU with "
        f"tensor_parallel {tensor_parallel}; {fits}"
    )


def _stages(number: int) -> str:
    return f"{number} stage{'s' * (number != 1)}"


def _describe(stage: Tightest) -> str:
    memory, gpu = stage.memory, stage.dc.gpu
    role = " and ".join(["first"] * stage.is_first + ["last"] * stage.is_last)
    which = "the only stage" if stage.num_stages == 1 else f"the {role} of {_stages(stage.num_stages)}"
    if not role:
        which = f"one of {_stages(stage.num_stages)}"
    return (
        f"{which}, {stage.layers} layer{'s' * (stage.layers != 1)} on {gpu.name} in {stage.dc.name!r} with "
        f"tensor_parallel {stage.tensor_parallel}, needs {format_bytes(stage.needs_bytes)} per GPU and "
        f"there are {memory_words(gpu, stage.dc.usable_bytes)} (weights, gradients and optimizer "
        f"{format_bytes(memory.static_bytes)}, one microbatch in flight {format_bytes(memory.activation_bytes)}, "
        f"workspace {format_bytes(memory.workspace_bytes)})"
    )


def _changes(dcs: Sequence[Datacenter], job: Job, stage: Tightest) -> Iterator[str]:
    """Single changes after which it fits, cheapest first."""
    yield from _other_jobs(job, dcs)
    yield from _wider_nodes(dcs, job)
    yield from _more_nodes(dcs, job)
    yield from _larger_gpu(dcs, job, stage)


def _other_jobs(job: Job, dcs: Sequence[Datacenter]) -> Iterator[str]:
    """Other settings of the job, with what the fullest GPU then holds."""
    sizes = [job.microbatch >> halved for halved in range(1, job.microbatch.bit_length())]
    for field, values in (("recompute", ["layerwise", "full"]), ("microbatch", sizes)):
        for value in values:
            after = tightest(dcs, job.model_copy(update={field: value}))
            if after.fill <= 1:
                yield f"{field}: {value} ({format_bytes(after.needs_bytes)} instead)"
                break


def _wider_nodes(dcs: Sequence[Datacenter], job: Job) -> Iterator[str]:
    """The same GPUs in larger nodes: more of them may share a stage."""
    widest = max(dc.gpus_per_node for dc in dcs)
    for width in _WIDTHS:
        wider = [_with(dc, nodes=dc.num_gpus // width, gpus_per_node=width) for dc in dcs if dc.num_gpus >= width]
        if width > widest and job.model.heads % width == 0 and wider and tightest(wider, job).fill <= 1:
            yield f"nodes of {width} GPUs, for tensor_parallel {width}"
            return


def _more_nodes(dcs: Sequence[Datacenter], job: Job) -> Iterator[str]:
    """More of the GPUs with the most memory; stages are no more than layers, so more nodes than that do not help."""
    largest = max(dcs, key=lambda dc: dc.usable_bytes)

    def enough(more: int) -> bool:
        having = [_with(dc, nodes=dc.nodes + more) if dc is largest else dc for dc in dcs]
        return tightest(having, job).fill <= 1

    fewest = _least(enough, job.model.layers)
    if fewest is not None:
        gpus = f"{largest.gpus_per_node} x " if largest.gpus_per_node > 1 else ""
        yield f"{fewest} more node{'s' * (fewest != 1)} of {gpus}{largest.gpu.name} in {largest.name!r}"


def _least(holds: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 1 to `most` for which it holds, if it holds for all larger ones."""
    if not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _larger_gpu(dcs: Sequence[Datacenter], job: Job, stage: Tightest) -> Iterator[str]:
    """The smallest GPU of the catalog that would do in the place of those that are smaller."""
    for gpu in sorted(GPUS.values(), key=lambda gpu: gpu.memory_bytes):
        if gpu.memory_bytes <= stage.dc.gpu.memory_bytes or not gpu.computes(job.precision):
            continue
        other = [_with(dc, gpu=gpu) if dc.gpu.memory_bytes < gpu.memory_bytes else dc for dc in dcs]
        if tightest(other, job).fill <= 1:
            yield f"{gpu.name} GPUs ({format_bytes(gpu.memory_bytes)})"
            return


def _with(dc: Datacenter, **fields: object) -> Datacenter:
    return dc.model_copy(update=fields)
