"""The Plan on a virtual clock."""

from geotrain.simulation.compare import Variant, choices, try_out
from geotrain.simulation.result import Result
from geotrain.simulation.simulate import simulate

__all__ = ["Result", "Variant", "choices", "simulate", "try_out"]
