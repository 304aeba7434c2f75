"""GPipe: all forwards, then all backwards in reverse."""

from geotrain.action import Kind, pack
from geotrain.schedule.passes import finish
from geotrain.schedule.schedule import Orders, Shape


def gpipe(shape: Shape) -> Orders:
    """Simple, and holds every microbatch of the step."""
    last = shape.num_stages - 1
    forwards = range(shape.num_microbatches)
    return Orders.of(
        finish(
            [pack(s, Kind.F, m) for m in forwards] + [pack(s, Kind.B, m) for m in reversed(forwards)],
            recompute=shape.recompute,
            last_stage=last,
        )
        for s in range(shape.num_stages)
    )
