"""Atlas: the pipelines of a cell take turns with their pooled WAN bandwidth; compute follows Varuna's rules.

Pooling shortens fill, drain and memory-bound stalls but adds no capacity, so a boundary where it does not help
stays as it was: whoever plays the schedule tries these choices and keeps the best.
"""

from collections.abc import Collection, Iterator

from geotrain.schedule.schedule import Rules, Shape
from geotrain.schedule.varuna import varuna


def atlas(shape: Shape) -> Rules:
    """Backward first, recompute early, forward up to the in-flight cap."""
    return varuna(shape)


def pooling_choices(boundaries: Collection[int], *, thorough: bool) -> Iterator[frozenset[int]]:
    """Which WAN boundaries to pool: all of them, none, and if there is time for it all but one."""
    everything = frozenset(boundaries)
    yield everything
    if everything:
        yield frozenset()
    if len(everything) > 1 and thorough:
        for kept in sorted(everything):
            yield everything - {kept}
