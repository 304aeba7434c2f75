"""Interleaved 1F1B (Megatron): each slot holds several chunks of the model, so the pipeline fills sooner."""

import numpy as np

from geotrain.action import Kind, pack
from geotrain.errors import DoesNotFitError
from geotrain.schedule.passes import alternate, finish
from geotrain.schedule.schedule import Orders, Shape


def interleaved(shape: Shape) -> Orders:
    """Microbatches go through the chunks in groups as large as the pipeline is long; the last group may be smaller."""
    size, chunks = shape.num_stages, shape.num_chunks
    groups = [range(g, min(g + size, shape.num_microbatches)) for g in range(0, shape.num_microbatches, size)]
    forwards = [(c, m) for group in groups for c in range(chunks) for m in group]
    backwards = [(c, m) for group in groups for c in reversed(range(chunks)) for m in group]
    total = len(forwards)
    orders = []
    for s in range(size):
        warm_up = min(total, 2 * (size - 1 - s) + (chunks - 1) * size)
        if shape.room[s] < min(total, warm_up + 1):
            raise DoesNotFitError(
                f"interleaved needs room for {min(total, warm_up + 1)} microbatch chunks on stage {s}, "
                f"there is room for {shape.room[s]}"
            )
        ahead = np.array([pack(c * size + s, Kind.F, m) for c, m in forwards], dtype=np.int64)
        back = np.array([pack(c * size + s, Kind.B, m) for c, m in backwards], dtype=np.int64)
        steady = alternate(ahead[warm_up:], back[: total - warm_up])
        order = np.concatenate([ahead[:warm_up], steady, back[total - warm_up :]])
        orders.append(finish(order, recompute=shape.recompute, last_stage=shape.num_model_stages - 1))
    return Orders(codes=tuple(orders))
