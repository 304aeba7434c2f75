"""Interleaved 1F1B (Megatron): each slot holds several chunks of the model, so the pipeline fills sooner."""

import numpy as np

from geotrain.action import MICROBATCH_MASK, MICROBATCH_SHIFT, Kind, pack
from geotrain.errors import DoesNotFitError
from geotrain.schedule.passes import alternate, finish, most_in_flight
from geotrain.schedule.schedule import Orders, Shape


def interleaved(shape: Shape) -> Orders:
    """Microbatches go through the chunks in groups as large as the pipeline is long.

    A last group that is not full is ordered as if it were, without the microbatches it lacks: made smaller, it would
    have slots wait for each other.
    """
    size, chunks, microbatches = shape.num_stages, shape.num_chunks, shape.num_microbatches
    groups = [range(start, start + size) for start in range(0, microbatches, size)]
    forwards = [(c, m) for group in groups for c in range(chunks) for m in group]
    backwards = [(c, m) for group in groups for c in reversed(range(chunks)) for m in group]
    total = len(forwards)
    orders = []
    for s in range(size):
        warm_up = min(total, 2 * (size - 1 - s) + (chunks - 1) * size)
        ahead = np.array([pack(c * size + s, Kind.F, m) for c, m in forwards], dtype=np.int64)
        back = np.array([pack(c * size + s, Kind.B, m) for c, m in backwards], dtype=np.int64)
        steady = alternate(ahead[warm_up:], back[: total - warm_up])
        order = np.concatenate([ahead[:warm_up], steady, back[total - warm_up :]])
        order = order[(order >> MICROBATCH_SHIFT & MICROBATCH_MASK) < microbatches]
        needs = most_in_flight(order)
        if shape.room[s] < needs:
            raise DoesNotFitError(
                f"interleaved needs room for {needs} microbatch chunks on stage {s}, there is room for {shape.room[s]}"
            )
        orders.append(finish(order, recompute=shape.recompute, last_stage=shape.num_model_stages - 1))
    return Orders(codes=tuple(orders))
