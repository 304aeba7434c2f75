"""What a process refuses by itself, before it meets any other."""

from geotrain.cost import transfer_bytes
from geotrain.errors import InputError
from geotrain.model import Config, weights
from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.training import saving
from geotrain.training.assembly import open_batches
from geotrain.training.options import Options
from geotrain.training.script import Script
from geotrain.training.wiring import MOST_PARCEL_BYTES
from geotrain.units import format_bytes

_READ_BYTES = 10e9
"""Data sets up to this size are read as a whole, some seconds; of larger ones every window is looked at in its turn."""


def check(plan: Plan, options: Options) -> None:
    """InputError for what no process of the run could do: with the plan, the data, the weights or the checkpoints."""
    Seating(plan).world(options.dc)
    check_plan(plan, options)
    batches = open_batches(plan, options)
    Script.of(plan)
    if batches is None:
        return
    if options.start is not None:
        weights.check(options.start, Config.of(plan.job.model, sequence=plan.job.sequence))
    saving.check(plan, options, batches.fingerprint)
    # Takes longest, so it comes last.
    if batches.dataset.tokens.nbytes <= _READ_BYTES:
        batches.dataset.verify()


def check_plan(plan: Plan, options: Options) -> None:
    """InputError for what can be simulated, not yet run."""
    if plan.replicas:
        raise InputError("the plan has replicas: data parallelism across data centers can be simulated, not yet run")
    if plan.job.recompute in ("layerwise", "selective"):
        raise InputError(f"recompute is {plan.job.recompute!r} and must be full (true) or none (false) to be trained")
    if plan.job.precision == "fp16" and options.compute == "torch":
        raise InputError("precision is 'fp16', whose small gradients would vanish: bf16 or fp32 can be trained")
    parcel_bytes = transfer_bytes(plan.job)
    if parcel_bytes > MOST_PARCEL_BYTES and len(Seating(plan).dcs) > 1:
        raise InputError(
            f"a microbatch sends {format_bytes(parcel_bytes)} to the next stage, and at most 4 GiB can cross the WAN "
            "at once: a smaller microbatch or sequence would do"
        )
