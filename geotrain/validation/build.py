"""A measured run as a Plan: one data center, one slot per stage and replica, the layers spread evenly.

Stages, rings and network cards follow Megatron's order of GPUs: those that share a layer are next to each other, then
the replicas of a stage, then the stages. What really ran also fitted, so the GPU's memory is lifted out of the way.
"""

import math

from geotrain.cluster import Cluster, Datacenter, Fabric, Gpu
from geotrain.cost.efficiency import rule_of
from geotrain.cost.memory import boundary_bytes
from geotrain.plan import Plan, Stage
from geotrain.validation.measured import Measured
from geotrain.workload import Efficiency, Job

NETWORK_SHARE = 0.8
"""Of the network cards' rate, what a ring all-reduce or a transfer gets."""
NETWORK_LATENCY_S = 10e-6
_ENOUGH_BYTES = 1e18
_PLACE = "measured"


def plan_of(row: Measured, efficiency: Efficiency | float) -> Plan:
    """The plan that does what the row's run did."""
    interleave, layers = chunks_and_layers(row)
    job = job_of(row, efficiency)
    slots_per_node = max(row.gpus_per_node, row.tensor_parallel) // row.tensor_parallel
    datacenter = Datacenter(
        name=_PLACE,
        nodes=math.ceil(row.pipeline_parallel * row.data_parallel / slots_per_node),
        gpus_per_node=max(row.gpus_per_node, row.tensor_parallel),
        gpu=lifted_gpu(row),
        fabric=_fabric(row, job),
    )
    return Plan(
        cluster=Cluster(datacenters=[datacenter]),
        job=job,
        tensor_parallel=row.tensor_parallel,
        sequence_parallel=row.sequence_parallel,
        stages=[Stage(dc=_PLACE, layers=number) for number in layers],
        cells=row.data_parallel,
        schedule="1f1b" if interleave == 1 else "interleaved",
        interleave=interleave,
    )


def job_of(row: Measured, efficiency: Efficiency | float) -> Job:
    """What was trained."""
    return Job(
        model=row.model.model_copy(update={"layers": sum(chunks_and_layers(row)[1])}),
        sequence=row.sequence,
        microbatch=row.microbatch,
        global_batch=row.global_batch,
        precision=row.precision,
        recompute="layerwise" if row.recompute == "full" else row.recompute,
        attention=row.attention,
        efficiency=efficiency,
    )


def chunks_and_layers(row: Measured) -> tuple[int, list[int]]:
    """Chunks per stage, and layers of each stage.

    Where the layers do not divide, the ends get fewer, for embedding and head. The row's interleaved chunks are kept
    if the largest stage gets no more layers than in an even split, a last chunk counting as full; otherwise the next
    smaller number of chunks for which that holds is taken. A single stage needs no chunks.
    """
    stages, layers = row.pipeline_parallel, row.model.layers
    wanted = row.interleave if stages > 1 else 1
    largest = math.ceil(layers / stages)
    chunks = next(c for c in range(wanted, 0, -1) if c * math.ceil(math.ceil(layers / c) / stages) == largest)
    each, more = divmod(math.ceil(layers / chunks), stages)
    by_distance_from_middle = sorted(range(stages), key=lambda stage: (abs(2 * stage - stages + 1), stage))
    larger = set(by_distance_from_middle[:more])
    return chunks, [chunks * (each + (stage in larger)) for stage in range(stages)]


def lifted_gpu(row: Measured) -> Gpu:
    """The GPU with all the memory in the world; tensor parallelism over several nodes goes at their cards' rate."""
    change: dict[str, float] = {"memory_bytes": _ENOUGH_BYTES}
    if row.tensor_parallel > row.gpus_per_node and row.gpu.nvlink is not None and row.gpu.nic is not None:
        change["nvlink"] = min(row.gpu.nvlink, row.gpu.nic * row.gpus_per_node)
    return row.gpu.model_copy(update=change)


def ring_and_hop_rates(row: Measured, nvlink_share: float) -> tuple[float, float]:
    """Bytes per second of a slot in a data-parallel ring, and to the next stage.

    Rings of one node share all its network cards; a transfer to the next stage has the cards of its own slot.
    """
    slot_link = _or_unlimited(row.gpu.nvlink) * nvlink_share * row.tensor_parallel
    card = _or_unlimited(row.gpu.nic) * NETWORK_SHARE
    ring_inside = row.tensor_parallel * row.data_parallel <= row.gpus_per_node
    ring = slot_link if ring_inside else min(slot_link, card * max(row.gpus_per_node, row.tensor_parallel))
    hop = slot_link if row.num_gpus <= row.gpus_per_node else card * row.tensor_parallel
    return ring, hop


def _fabric(row: Measured, job: Job) -> Fabric | None:
    """A fabric has one rate, here the ring's; a transfer to the next stage arrives later where its way is slower."""
    rule = rule_of(job)
    share = (rule if isinstance(rule, Efficiency) else Efficiency()).nvlink
    ring, hop = ring_and_hop_rates(row, share)
    if row.pipeline_parallel * row.data_parallel == 1 or math.isinf(ring):
        return None
    sent = boundary_bytes(job)
    return Fabric(rate=ring, latency_s=NETWORK_LATENCY_S + max(0.0, sent / hop - sent / ring))


def _or_unlimited(rate: float | None) -> float:
    return math.inf if rate is None else rate
