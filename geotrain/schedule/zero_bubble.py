"""Zero bubble: input gradients are hurried on, weight gradients fill the gaps.

The order comes from rules, so unequal stages and hops need no special case. A handful of rule sets differ in how far
forwards run ahead and how much a W may hold up; whoever plays them keeps the best.
"""

import math

from geotrain.schedule.schedule import Patience, Rules, Shape

_PATIENCE = (
    Patience(w_before_f=0, w_before_b=0),
    Patience(w_before_f=1, w_before_b=1),
    Patience(w_before_f=0, w_before_b=1 / 32, f_before_b=1 / 2),
)
_EXTRA_AHEAD = (0.0, 1 / 16, 1 / 8, 1 / 4, math.inf)
"""Forwards more per stage of the way to the last one, which hide what hops add to it; inf: as many as memory takes."""


def zero_bubble(shape: Shape) -> list[Rules]:
    """The memory of 1F1B's first stage on every stage, and no more."""
    return _rules(shape, factor=1)


def zero_bubble_2p(shape: Shape) -> list[Rules]:
    """Twice that memory, which is enough to hide the whole pipeline when hops are short."""
    return _rules(shape, factor=2)


def _rules(shape: Shape, *, factor: int) -> list[Rules]:
    stages = shape.num_stages
    hold = tuple(float(min(factor * stages, room)) for room in shape.room)
    rules = []
    for extra in _EXTRA_AHEAD:
        ahead = tuple(
            int(min(factor * stages, room, factor * to_last + 1 + (extra * to_last if to_last else 0)))
            for to_last, room in zip(reversed(range(stages)), shape.room, strict=True)
        )
        rules += [Rules(ahead=ahead, split=True, hold=hold, patience=patience) for patience in _PATIENCE]
    return rules
