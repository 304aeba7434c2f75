"""What the exact solver found, beside a simulated step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geotrain.simulation import Result
from geotrain.units import format_seconds

if TYPE_CHECKING:  # OR-Tools is an extra
    from geotrain.simulation.exact import Exact


def exact_sentence(exact: Exact, result: Result) -> str:
    """How far the step is from the best possible one."""
    over = result.step_time_s / exact.bound_s
    if exact.optimal:
        best = f"the best possible step is {format_seconds(min(exact.step_s, result.step_time_s))} (proven)"
    else:
        best = f"no schedule is faster than {format_seconds(exact.bound_s)}; whether one is that fast is open"
    return f"Exact solver: {best}; this one is {over:.4f} x that."


def exact_json(exact: Exact, result: Result) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "step_time_s": exact.step_s,
        "bound_s": exact.bound_s,
        "optimal": exact.optimal,
        "gap": exact.gap,
        "pooled_boundaries": sorted(exact.pooled),
        "simulated_over_bound": result.step_time_s / exact.bound_s,
    }
