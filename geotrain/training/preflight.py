"""What a process refuses by itself, before it meets any other."""

from geotrain.model import Config, weights
from geotrain.plan import Plan
from geotrain.runnable import check_runnable
from geotrain.seating import Seating
from geotrain.training import saving
from geotrain.training.assembly import open_batches
from geotrain.training.options import Options
from geotrain.training.script import Script

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
    check_runnable(plan, emulated=options.compute == "emulated")
