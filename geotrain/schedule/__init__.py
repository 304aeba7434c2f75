"""The order of work in a pipeline: pure functions from a shape to schedules, and one checker."""

from collections.abc import Callable

from geotrain.plan import ScheduleName
from geotrain.schedule.atlas import atlas, pooling_choices
from geotrain.schedule.checker import check
from geotrain.schedule.gpipe import gpipe
from geotrain.schedule.interleaved import interleaved
from geotrain.schedule.one_f_one_b import one_f_one_b
from geotrain.schedule.schedule import Orders, Patience, RecomputeWhen, Rules, Schedule, Shape
from geotrain.schedule.varuna import varuna
from geotrain.schedule.zero_bubble import zero_bubble, zero_bubble_2p

SCHEDULES: dict[ScheduleName, Callable[[Shape], Schedule | list[Rules]]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "varuna": varuna,
    "zero-bubble": zero_bubble,
    "zero-bubble-2p": zero_bubble_2p,
    "atlas": atlas,
}
"""By name: one schedule, or several of which the best is kept. `auto` is not here: it is a search that plays them."""


def candidates(name: ScheduleName, shape: Shape) -> list[Schedule]:
    """What that name offers for this shape."""
    made = SCHEDULES[name](shape)
    return list(made) if isinstance(made, list) else [made]


__all__ = [
    "SCHEDULES",
    "Orders",
    "Patience",
    "RecomputeWhen",
    "Rules",
    "Schedule",
    "Shape",
    "candidates",
    "check",
    "pooling_choices",
]
