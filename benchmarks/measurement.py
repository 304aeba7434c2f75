"""One measured figure and the target it is held against."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A figure; without a target it is only shown."""

    name: str
    value: float
    unit: str
    target: float | None = None
    more_is_better: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        if self.target is None:
            return True
        return self.value >= self.target if self.more_is_better else self.value <= self.target


def best_of(times: int, run: Callable[[], object]) -> float:
    """Shortest wall time: what the code needs, without what the machine did besides."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
