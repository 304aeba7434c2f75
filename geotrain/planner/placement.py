"""Which data centers hold the stages of a pipeline, in which order, and how many each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise, permutations

from geotrain.planner.layout import Placement

_FEW_DATACENTERS = 4
"""Up to here every choice of them is tried, in the shortest orders."""
_SHORTEST = 6
"""Orders of the same data centers that are tried: all of up to three."""
_FEW_SPLITS = 6
"""Up to here every split of stages over the data centers is tried."""

Measure = Callable[[int, int], float]
"""How far apart two data centers are, there and back: in latency, in time on the wire, or in both."""


def placements(
    num_stages: int, room: Sequence[int], measures: Sequence[Measure], twins: Sequence[Sequence[int]]
) -> Iterator[Placement]:
    """Ways to place the stages where data center n has room for room[n] of them; the shortest by each measure.

    Of data centers that nobody can tell apart (`twins[n]` are those before n), the first ones are used, in order.
    """
    usable = [dc for dc, stages in enumerate(room) if stages > 0]
    seen: set[Placement] = set()
    for order in _orders(num_stages, usable, room, measures):
        if any(twin not in order[:place] for place, dc in enumerate(order) for twin in twins[dc]):
            continue
        for split in _splits(num_stages, [room[dc] for dc in order]):
            placement = tuple(zip(order, split, strict=True))
            if placement not in seen:
                seen.add(placement)
                yield placement


def _orders(
    num_stages: int, usable: Sequence[int], room: Sequence[int], measures: Sequence[Measure]
) -> Iterable[Sequence[int]]:
    if len(usable) <= _FEW_DATACENTERS:
        for count in range(1, min(len(usable), num_stages) + 1):
            for chosen in combinations(usable, count):
                if sum(room[dc] for dc in chosen) >= num_stages:
                    yield from _shortest(list(permutations(chosen)), measures)
        return
    yield _until_enough(num_stages, sorted(usable, key=lambda dc: -room[dc]), room)
    for measure in measures:
        ways = []
        for start in usable:
            near = sorted((dc for dc in usable if dc != start), key=lambda dc: (measure(start, dc), dc))
            for order in ([start, *near], _nearest_next(start, usable, measure)):
                ways.append(_untangled(_until_enough(num_stages, order, room), measure))
        yield from _shortest(ways, [measure])


def _shortest(ways: Sequence[Sequence[int]], measures: Sequence[Measure]) -> Iterator[Sequence[int]]:
    """All of a few, otherwise the shortest few by each measure."""
    if len(ways) <= _SHORTEST:
        yield from ways
        return
    for measure in measures:
        yield from sorted(ways, key=lambda way: _length(way, measure))[:_SHORTEST]


def _until_enough(num_stages: int, order: Iterable[int], room: Sequence[int]) -> list[int]:
    chosen: list[int] = []
    for dc in order:
        if sum(room[other] for other in chosen) >= num_stages:
            break
        chosen.append(dc)
    return chosen


def _nearest_next(start: int, usable: Iterable[int], measure: Measure) -> list[int]:
    order, left = [start], set(usable) - {start}
    while left:
        order.append(min(left, key=lambda dc: (measure(order[-1], dc), dc)))
        left.remove(order[-1])
    return order


def _untangled(order: list[int], measure: Measure) -> list[int]:
    """Turn parts of the way around while that makes it shorter."""

    improved = True
    while improved:
        improved = False
        for first, last in combinations(range(len(order) + 1), 2):
            turned = [*order[:first], *reversed(order[first:last]), *order[last:]]
            if _length(turned, measure) < _length(order, measure) * (1 - 1e-12):
                order, improved = turned, True
    return order


def _length(way: Sequence[int], measure: Measure) -> float:
    return sum(measure(here, there) for here, there in pairwise(way))


def _splits(num_stages: int, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Stages per data center of an order, at least one each: every way, or full from either end, or in proportion."""
    spare = sum(room) - num_stages
    if spare < 0 or num_stages < len(room):
        return
    if _num_splits(spare, len(room)) <= _FEW_SPLITS:
        yield from _every_split(spare, room)
        return
    yield _filled(num_stages, room)
    yield _filled(num_stages, room[::-1])[::-1]
    yield _in_proportion(num_stages, room)


def _every_split(spare: int, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not room:
        if spare == 0:
            yield ()
        return
    for free in range(min(spare, room[0] - 1) + 1):
        for rest in _every_split(spare - free, room[1:]):
            yield (room[0] - free, *rest)


def _num_splits(spare: int, parts: int) -> int:
    """At most that many ways to leave `spare` places free."""
    ways = 1
    for part in range(1, parts):
        ways = ways * (spare + part) // part
    return ways


def _filled(num_stages: int, room: Sequence[int]) -> tuple[int, ...]:
    split, left = [], num_stages
    for place, most in enumerate(room):
        after = len(room) - place - 1
        split.append(min(most, left - after))
        left -= split[-1]
    return tuple(split)


def _in_proportion(num_stages: int, room: Sequence[int]) -> tuple[int, ...]:
    split = [1] * len(room)
    for _ in range(num_stages - len(room)):
        place = min((p for p in range(len(room)) if split[p] < room[p]), key=lambda p: (split[p] + 1) / room[p])
        split[place] += 1
    return tuple(split)
