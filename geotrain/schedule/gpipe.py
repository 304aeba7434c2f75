"""GPipe: all forwards, then all backwards in reverse."""

import numpy as np

from geotrain.action import Kind
from geotrain.schedule.passes import every_microbatch, finish
from geotrain.schedule.schedule import Orders, Shape


def gpipe(shape: Shape) -> Orders:
    """Simple, and holds every microbatch of the step."""
    orders = []
    for s in range(shape.num_stages):
        forwards = every_microbatch(s, Kind.F, shape.num_microbatches)
        backwards = every_microbatch(s, Kind.B, shape.num_microbatches)
        order = np.concatenate([forwards, backwards[::-1]])
        orders.append(finish(order, recompute=shape.recompute, last_stage=shape.num_stages - 1))
    return Orders(codes=tuple(orders))
