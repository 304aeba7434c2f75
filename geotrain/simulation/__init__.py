"""The Plan on a virtual clock."""

from geotrain.simulation.compare import Variant, choices, try_out
from geotrain.simulation.jitter import DISTRIBUTIONS, Jitter, Spread, spread
from geotrain.simulation.result import Result
from geotrain.simulation.simulate import rehearse, run, simulate

__all__ = [
    "DISTRIBUTIONS",
    "Jitter",
    "Result",
    "Spread",
    "Variant",
    "choices",
    "rehearse",
    "run",
    "simulate",
    "spread",
    "try_out",
]
