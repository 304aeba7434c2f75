"""What all processes of a run must have in common, though each is told by its own command line and files."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.seating import Seat
from geotrain.tokens import Batches
from geotrain.training.options import Options
from geotrain.training.recording import fingerprint
from geotrain.training.script import Script

Terms = Mapping[str, object]
"""By what a person would call it; plain enough for JSON."""


def terms(plan: Plan, script: Script, options: Options, batches: Batches | None) -> Terms:
    """What this process is about to do."""
    return {
        "plan": fingerprint(plan),
        "schedule": script.fingerprint,
        "compute": options.compute,
        "number of steps": options.steps,
        "seed": options.seed,
        "recipe": hashlib.sha256(repr(asdict(options.recipe)).encode()).hexdigest()[:16],
        "data set": None if batches is None else batches.dataset.fingerprint[:16],
        "beginning": "weights drawn from the seed" if options.start is None else "weights from a file",
        "--resume": options.resume,
        "--sharded": options.sharded,
        "--checkpoint-every": options.checkpoint_every,
    }


def check(seat: Seat, mine: Terms, seats: Sequence[Seat], told: Sequence[Terms]) -> None:
    """InputError if another process is about to do something else."""
    for other, theirs in zip(seats, told, strict=True):
        for what, value in mine.items():
            if theirs.get(what) != value:
                raise InputError(
                    f"{other.name} and {seat.name} differ in their {what}: {theirs.get(what)} and {value}; "
                    "all processes of a run must be told the same"
                )
