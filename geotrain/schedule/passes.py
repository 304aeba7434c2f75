"""Pieces that fixed orders are made of, as arrays of packed actions."""

import numpy as np

from geotrain.action import KIND_MASK, MICROBATCH_SHIFT, STAGE_SHIFT, Kind, pack
from geotrain.timeline import Ints


def every_microbatch(stage: int, kind: Kind, num_microbatches: int) -> Ints:
    """That action for microbatches 0, 1, 2 ..."""
    return pack(stage, kind, 0) + (np.arange(num_microbatches, dtype=np.int64) << MICROBATCH_SHIFT)


def alternate(first: Ints, second: Ints) -> Ints:
    """One of the first, one of the second, and so on."""
    return np.stack([first, second], axis=1).reshape(-1)


def with_recompute(order: Ints, last_stage: int) -> Ints:
    """Put R right before each B, so that it runs while the gradient is on its way.

    Not where the model's last stage goes straight from F to the B of the same microbatch: nothing was dropped yet.
    """
    is_backward = order & KIND_MASK == Kind.B
    previous = np.concatenate([[-1], order[:-1]])
    straight = (order >> STAGE_SHIFT == last_stage) & (previous == order - Kind.B + Kind.F)
    needs = is_backward & ~straight
    repeated = np.repeat(order, 1 + needs)
    first = np.cumsum(1 + needs) - (1 + needs)
    repeated[first[needs]] += Kind.R - Kind.B
    return repeated


def finish(order: Ints, *, recompute: bool, last_stage: int) -> Ints:
    """The order as it is played."""
    return with_recompute(order, last_stage) if recompute else order


_IN_FLIGHT = np.array([1, 0, -1, -1, 0, 0, 0, 0])
"""Microbatches in flight that F, R, B, I, W add."""


def most_in_flight(order: Ints) -> int:
    """Most microbatches of the slot whose forward has begun and whose backward has not ended."""
    return int(np.cumsum(_IN_FLIGHT[order & KIND_MASK]).max())
