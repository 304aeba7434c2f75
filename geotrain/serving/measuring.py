"""How long a layer takes on a slot, measured in windows, like all work there."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from geotrain.serving.gate import Gate
from geotrain.serving.shard import Chunk, Shard
from geotrain.serving.windows import LOOK_S

_TRIES = 3
_NAME = "measure"


def measured(
    shard: Shard, gate: Gate, points: Sequence[tuple[int, int]], *, ended: Callable[[], bool]
) -> tuple[float, ...]:
    """Seconds of a layer at each point of new and cached tokens, the median of some tries.

    When `ended`, no more windows are waited for.
    """
    return tuple(
        float(np.median([_tried(shard, gate, new, cached, ended) for _ in range(_TRIES)])) for new, cached in points
    )


def _tried(shard: Shard, gate: Gate, new: int, cached: int, ended: Callable[[], bool]) -> float:
    part = shard.part
    shape, dtype = ((), torch.int64) if part.embeds else ((part.config.hidden_size,), next(part.parameters()).dtype)

    def passed(tokens: int, position: int) -> float:
        x = torch.zeros((tokens, *shape), dtype=dtype)
        return _passed(shard, gate, Chunk(request=_NAME, x=x, position=position, is_last=False), ended)

    shard.start(_NAME, cached + new)
    try:
        if cached:
            passed(cached, 0)
        return passed(new, cached)
    finally:
        shard.release(_NAME)


def _passed(shard: Shard, gate: Gate, chunk: Chunk, ended: Callable[[], bool]) -> float:
    """Mean time of a layer."""
    times_s: list[float] = []
    run = shard.run([chunk])
    while not run.out:
        # The quickest: a layer that took longer was held up, and no window might be as long as that.
        while not gate.wait(min(times_s, default=0.0), LOOK_S) and not ended():
            pass
        start_s = time.monotonic()
        next(run)
        times_s.append(time.monotonic() - start_s)
        gate.ran(start_s)
    return sum(times_s) / len(times_s)
