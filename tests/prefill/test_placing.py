"""The compiled search against a slow one: every window of every slot, one after the other, in whole ticks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.prefill.placing import NOTHING, lay, place, walk

TICK_S = 2.0**-10
"""All times are whole ticks, so that floats are exact."""
NEVER = math.inf


@dataclass
class Case:
    step: int
    begin: int
    rows: list[list[tuple[int, int]]]
    """Windows of each row in a step that begins at 0."""
    row_of: list[int]
    """Of each slot."""
    frontier: list[int]
    instances: list[list[int]]
    layers: list[list[int]]
    room: list[int]
    """Of each slot, in layers of one token."""
    units: list[int]
    hop: int
    now: int
    until: int

    def windows(self, slot: int) -> Iterator[tuple[int, int]]:
        """In order of time, from long ago until too late."""
        begin = self.begin + ((self.now - self.begin) // self.step - 2) * self.step
        while begin <= self.until + 2 * self.step:
            yield from ((begin + start, begin + end) for start, end in self.rows[self.row_of[slot]])
            begin += self.step

    def walk(self, slot: int, now: int, count: int, unit: int) -> tuple[float, float]:
        began = NEVER
        for start, end in self.windows(slot):
            at = max(start, now)
            fit = min(count, (end - at) // unit)
            if fit <= 0:
                continue
            if at >= self.until:
                break
            began = min(began, at)
            count -= fit
            if count == 0:
                return began, at + fit * unit
        return NEVER, NEVER

    def lay(self, instance: int) -> tuple[float, float, list[float]]:
        """Start, end, and until when each slot is booked."""
        slots = self.instances[instance]
        free = [max(self.now, self.frontier[slot]) for slot in slots]
        first, end = NEVER, NEVER
        for unit in self.units:
            ready = self.now
            for q, slot in enumerate(slots):
                began, end = self.walk(slot, max(ready, free[q]), self.layers[instance][q], unit)
                if end == NEVER:
                    return NEVER, NEVER, []
                first = min(first, began)
                free[q], ready = int(end), int(end) + self.hop
        return first, end, list(map(float, free))

    @property
    def idle(self) -> list[float]:
        """Share of each row's time."""
        return [sum(max(0, end - start) for start, end in row) / self.step for row in self.rows]

    def guess(self, instance: int) -> float:
        """When it would end if its slots were always a little idle instead of now and then."""
        slots, total = self.instances[instance], sum(self.units)
        rates = [self.idle[self.row_of[slot]] for slot in slots]
        return max(
            max(self.now, self.frontier[slot]) + (total * layers / rate if rate else NEVER)
            for slot, layers, rate in zip(slots, self.layers[instance], rates, strict=True)
        )

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first = np.cumsum([0, *map(len, self.rows)])
        starts, ends = (np.array([w[side] for row in self.rows for w in row], dtype=float) * TICK_S for side in (0, 1))
        return first, starts, ends

    @property
    def clock(self) -> tuple[float, float]:
        return self.begin * TICK_S, self.step * TICK_S

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.row_of), np.array(self.frontier) * TICK_S

    @property
    def work(self) -> tuple[np.ndarray, float, float, float]:
        return np.array(self.units) * TICK_S, self.hop * TICK_S, self.now * TICK_S, self.until * TICK_S


@st.composite
def windows(draw: st.DrawFn, step: int) -> list[tuple[int, int]]:
    """Between spans of training, the first one from before the step; less a guard that may be longer than some."""
    count, guard = draw(st.integers(0, 4)), draw(st.integers(0, 6))
    edges = sorted(draw(st.lists(st.integers(0, step), min_size=2 * count, max_size=2 * count)))
    starts, ends = edges[::2], edges[1::2]
    opens = [ends[-1] - step, *ends[:-1]] if ends else []
    return [(begin, end - guard) for begin, end in zip(opens, starts, strict=True)]


@st.composite
def cases(draw: st.DrawFn, most_chunks: int = 4) -> Case:
    step, now = draw(st.integers(20, 200)), draw(st.integers(0, 2000))
    rows = draw(st.lists(windows(step), min_size=1, max_size=5))
    width, count = draw(st.integers(1, 3)), draw(st.integers(0, 7))
    total = draw(st.integers(width, 8))
    slots = width * max(1, count)
    cuts = st.permutations(range(1, total)).map(lambda order: sorted(order[: width - 1]))
    layers = [np.diff([0, *draw(cuts), total]).tolist() for _ in range(count)]
    order = draw(st.permutations(range(slots)))
    return Case(
        step=step,
        begin=now - draw(st.integers(-30, 500)),
        rows=rows,
        row_of=draw(st.lists(st.integers(0, len(rows) - 1), min_size=slots, max_size=slots)),
        frontier=draw(st.lists(st.integers(max(0, now - 300), now + 300), min_size=slots, max_size=slots)),
        instances=[list(order[width * n : width * (n + 1)]) for n in range(count)],
        layers=layers,
        room=draw(st.lists(st.integers(-1, 20), min_size=slots, max_size=slots)),
        units=draw(st.lists(st.integers(1, 30), min_size=1, max_size=most_chunks)),
        hop=draw(st.integers(0, 5)),
        now=now,
        until=now + draw(st.integers(0, 2000)),
    )


@given(case=cases(), count=st.integers(1, 12))
@settings(max_examples=100)
def test_walk(case: Case, count: int) -> None:
    (unit_s, *_), unit = case.work, case.units[0]
    for slot, row in enumerate(case.row_of):
        found = walk(*case.table, row, *case.clock, case.now * TICK_S, count, unit_s[0], case.until * TICK_S)
        assert np.array(found) / TICK_S == pytest.approx(case.walk(slot, case.now, count, unit))


@given(case=cases())
@settings(max_examples=100)
def test_lay(case: Case) -> None:
    unit_s, hop_s, now_s, until_s = case.work
    for instance, slots in enumerate(case.instances):
        at_s = np.empty(len(slots))
        where = *case.places, np.array(slots), np.array(case.layers[instance])
        found = lay(*case.table, *case.clock, *where, unit_s, hop_s, now_s, until_s, at_s)
        start, end, free = case.lay(instance)
        assert np.array(found) / TICK_S == pytest.approx([start, end])
        if end < NEVER:
            assert at_s / TICK_S == pytest.approx(free)


def chosen(case: Case, tokens: int) -> tuple[int, float, float]:
    width = len(case.layers[0]) if case.layers else 1
    instances = np.array(case.instances, dtype=np.int64).reshape(-1, width)
    layers = np.array(case.layers, dtype=np.int64).reshape(-1, width)
    unit_s, *rest = case.work
    where = *case.places, instances, layers, np.array(case.room, dtype=np.int64), tokens
    instance, start_s, end_s = place(*case.table, np.array(case.idle), *case.clock, *where, unit_s, *rest)
    return instance, start_s / TICK_S, end_s / TICK_S


@given(case=cases(most_chunks=6), tokens=st.integers(0, 4))
@settings(max_examples=200)
def test_place_takes_the_instance_that_ends_soonest(case: Case, tokens: int) -> None:
    able = [
        n
        for n, (slots, layers) in enumerate(zip(case.instances, case.layers, strict=True))
        if all(case.room[slot] >= tokens * mine for slot, mine in zip(slots, layers, strict=True))
    ]
    if case.layers and len(case.units) * len(case.layers[0]) > 8:
        # So long a prompt is tried only where it should end soonest, once for instances that begin on the same row.
        # Of equals the first instance, and then the first row.
        first = {case.row_of[case.instances[n][0]]: n for n in sorted(able, key=lambda n: (-case.guess(n), -n))}
        able = [first[row] for row in sorted(first, key=lambda row: (case.guess(first[row]), row))]
        del able[max(1, 4 // len(case.layers[0])) :]
    ends = {n: case.lay(n)[1] for n in able}
    instance, start, end = chosen(case, tokens)
    assert end == pytest.approx(min(ends.values(), default=NEVER))
    if end == NEVER:
        assert instance == NOTHING
    else:
        assert ends[instance] == end
        assert start == pytest.approx(case.lay(instance)[0])


def test_chunks_overlap_on_the_slots_of_an_instance() -> None:
    """Slot 1 works on the first chunk while slot 0 works on the second: the wider instance is through sooner."""
    case = Case(
        step=1000, begin=0, rows=[[(0, 1000)]], row_of=[0] * 4, frontier=[10, 10, 0, 0], instances=[[2, 3], [0, 1]],
        layers=[[7, 1], [4, 4]], room=[8] * 4, units=[10, 10, 10, 10], hop=0, now=0, until=1000,
    )  # fmt: skip
    assert case.lay(0)[:2] == (0, 290) and case.lay(1)[:2] == (10, 210)
    assert chosen(case, 1) == (1, 10, 210)
