"""Whether `geotrain train` can run a plan, and if not, why. Pure: plan, launch and the trainer itself ask here."""

from geotrain.cost import transfer_bytes
from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.units import format_bytes
from geotrain.workload import Job

MOST_PARCEL_BYTES = (1 << 32) - 1
"""Of one transfer over the WAN: the place of a pool's shard in its buffer is told in 32 bits."""


def why_not_runnable(plan: Plan, *, emulated: bool = False) -> list[str]:
    """Return what the trainer refuses about the plan, a sentence part each; empty where it can run it.

    `emulated`: compute is not real (`--compute emulated`), so neither model nor precision matters.
    """
    reasons = why_no_plan_is_runnable(plan.job, emulated=emulated)
    if plan.replicas:
        reasons.append("the plan has replicas: data parallelism across data centers can be simulated, not yet run")
    kv_heads = plan.job.model.kv_heads
    if kv_heads % plan.tensor_parallel and not emulated:
        reasons.append(f"tensor_parallel is {plan.tensor_parallel} and must divide the model's {kv_heads} kv_heads")
    try:
        dcs = Seating(plan).dcs
    except InputError as error:
        return [*reasons, str(error)]
    parcel_bytes = transfer_bytes(plan.job)
    if parcel_bytes > MOST_PARCEL_BYTES and len(dcs) > 1:
        reasons.append(
            f"a microbatch sends {format_bytes(parcel_bytes)} to the next stage, and at most 4 GiB can cross the WAN "
            "at once: a smaller microbatch or sequence would do"
        )
    return reasons


def why_no_plan_is_runnable(job: Job, *, emulated: bool = False) -> list[str]:
    """Return what the trainer refuses about the job, whatever the plan."""
    reasons, model = [], job.model
    if job.recompute in ("layerwise", "selective"):
        reasons.append(f"recompute is {job.recompute!r} and must be full (true) or none (false) to be trained")
    if emulated:
        return reasons
    if job.precision == "fp16":
        reasons.append("precision is 'fp16', whose small gradients would vanish: bf16 or fp32 can be trained")
    if model.activation != "swiglu":
        reasons.append(
            f"model {model.name}: activation is {model.activation!r} and must be 'swiglu': "
            "only the Llama family can be trained"
        )
    if model.hidden % model.heads:
        reasons.append(f"model {model.name}: hidden is {model.hidden} and must be a multiple of heads, {model.heads}")
    if model.head_dim % 2:
        reasons.append(f"model {model.name}: head_dim is {model.head_dim} and must be even to be trained")
    return reasons


def check_runnable(plan: Plan, *, emulated: bool = False) -> None:
    """Raise an InputError with all reasons, in one sentence, unless the trainer can run the plan."""
    if reasons := why_not_runnable(plan, emulated=emulated):
        raise InputError("; ".join(reasons))
