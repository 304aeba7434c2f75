"""What a process refuses by itself, before it meets any other."""

from geotrain.errors import InputError
from geotrain.layout import Layout
from geotrain.model import Config, weights
from geotrain.plan import Plan
from geotrain.training import saving
from geotrain.training.assembly import open_batches
from geotrain.training.options import Options
from geotrain.training.script import Script


def check(plan: Plan, options: Options) -> None:
    """InputError for what no process of the run could do: with the plan, the data, the weights or the checkpoints."""
    Layout(plan).world(options.dc)
    check_plan(plan)
    batches = open_batches(plan, options)
    Script.of(plan)
    if batches is None:
        return
    if options.start is not None:
        weights.check(options.start, Config.of(plan.job.model, sequence=plan.job.sequence))
    saving.check(plan, options, batches.fingerprint)


def check_plan(plan: Plan) -> None:
    """InputError for what can be simulated, not yet run."""
    if plan.replicas:
        raise InputError("the plan has replicas: data parallelism across data centers can be simulated, not yet run")
    if plan.job.recompute in ("layerwise", "selective"):
        raise InputError(f"recompute is {plan.job.recompute!r} and must be full (true) or none (false) to be trained")
