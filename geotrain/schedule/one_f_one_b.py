"""1F1B (Megatron): a warm-up as long as the way to the last stage, then one forward, one backward, then drain."""

import numpy as np

from geotrain.action import Kind
from geotrain.schedule.passes import alternate, every_microbatch, finish
from geotrain.schedule.schedule import Orders, Shape


def one_f_one_b(shape: Shape) -> Orders:
    """Holds at most num_stages - s microbatches on stage s; less warm-up where memory is short."""
    total = shape.num_microbatches
    orders = []
    warm_up = total
    for s in range(shape.num_stages):
        # A stage that waits for more forwards than the one before it will send would wait for ever.
        warm_up = min(warm_up, shape.num_stages - 1 - s, shape.room[s] - 1)
        forwards = every_microbatch(s, Kind.F, total)
        backwards = every_microbatch(s, Kind.B, total)
        steady = alternate(forwards[warm_up:], backwards[: total - warm_up])
        order = np.concatenate([forwards[:warm_up], steady, backwards[total - warm_up :]])
        orders.append(finish(order, recompute=shape.recompute, last_stage=shape.num_stages - 1))
    return Orders(codes=tuple(orders))
