"""One choice of boundaries to pool in whole numbers, and what is known of its best schedules before any search.

Knows no solver.
"""

import numpy as np

from geotrain.action import Action, Kind
from geotrain.simulation.problem import Problem
from geotrain.simulation.wiring import Wiring
from geotrain.timeline import Ints

_MOST_UNITS = 1 << 50
"""Longest horizon in units of the model's clock; a finer clock would be finer than the float that is handed back."""


class Case:
    """Times in units of a clock of its own; memory in the problem's units."""

    def __init__(self, problem: Problem, wiring: Wiring, *, most: float) -> None:
        """`most`: longest step, in ticks, that is looked at."""
        self.problem, self.wiring, self.shape = problem, wiring, problem.shape
        self.stages = range(self.shape.num_model_stages)
        self.microbatches = range(self.shape.num_microbatches)
        self.pipelines = range(wiring.num_pipelines)
        self.channel, occupancy, latency, _ = wiring.hop_rows()
        self._set_clock(problem.durations, occupancy, latency, problem.finish, most)
        self.held = problem.held(split=True)
        at_once = self.durations[Kind.W] == 0  # W right after I, as one B: nothing waits in between
        self.held[Kind.I, at_once] += self.held[Kind.W, at_once]
        self.held[Kind.W, at_once] = 0
        self.limits = problem.limits(split=True)

    def _set_clock(self, durations: Ints, occupancy: Ints, latency: Ints, finish: Ints, most: float) -> None:
        """The coarsest clock on which all times are whole; if even that is too fine, times are cut, not rounded up."""
        moves = durations[[Kind.F, Kind.R, Kind.I, Kind.W]].sum() + occupancy.sum() + latency.sum()
        serial = int(moves) * len(self.microbatches) * len(self.pipelines) + int(finish.max())
        times = np.concatenate([durations.ravel(), occupancy.ravel(), latency.ravel(), finish])
        self.unit = max(int(np.gcd.reduce(times)), serial // _MOST_UNITS + 1 if serial > _MOST_UNITS else 1)
        self.durations, self.occupancy = durations // self.unit, occupancy // self.unit
        self.latency, self.finish = latency // self.unit, finish // self.unit
        self.horizon = int(min(serial, most)) // self.unit

    def stages_of(self, slot: int) -> range:
        """Stages of the model that the slot holds."""
        return self.stages[slot :: self.shape.num_stages]

    def goes_straight(self, stage: int) -> bool:
        """Whether it always goes from F to I, without R."""
        return stage == self.stages[-1] and self.shape.num_chunks == 1

    def is_in_order(self, stage: int, kind: Kind) -> bool:
        """Whether its microbatches come in order; not where some of them are unlike the others."""
        if kind == Kind.F:
            return True
        return not (self.may_go_straight(stage) or (kind == Kind.W and self.may_fuse(stage)))

    def may_go_straight(self, stage: int) -> bool:
        """Whether it may go from F to I, without R, as the last stage of a slot with several."""
        return stage == self.stages[-1] and self.shape.num_chunks > 1 and self.shape.recompute

    def may_fuse(self, stage: int) -> bool:
        """Whether I and W as one B may need less memory."""
        return self.held[Kind.I, stage] > 0 and self.memory_binds(stage % self.shape.num_stages)

    def memory_binds(self, slot: int) -> bool:
        """Whether some order could hold more than there is."""
        kept, back, waiting = (max(map(of, self.stages_of(slot))) for of in (self.kept, self.back, self.waiting))
        most = len(self.microbatches) * self.shape.num_chunks
        # At most one in flight has been recomputed; where a slot has several stages, the last may go straight besides.
        worked_on = back * min(self.shape.num_chunks, 2)
        held = [n * kept + (most - n) * waiting + worked_on for n in (1, min(most, self.shape.room[slot]))]
        return max(most * waiting, *held) > int(self.limits[slot])

    def kept(self, stage: int) -> int:
        """Memory of a microbatch between F and I."""
        return self.waiting(stage) - int(self.held[Kind.I, stage]) - self.back(stage)

    def back(self, stage: int) -> int:
        """What recompute adds to it."""
        return int(self.held[Kind.R, stage])

    def waiting(self, stage: int) -> int:
        """Memory of a microbatch between I and W."""
        return -int(self.held[Kind.W, stage])

    def is_known_to_precede(self, one: Action, other: Action) -> bool | None:
        """Whether the one action comes before the other on their slot; None where that is open."""
        (stage, kind, m), (other_stage, other_kind, other_m) = one, other
        if stage != other_stage:
            return None
        if m == other_m:
            return kind < other_kind
        if self.goes_straight(stage) and {kind, other_kind} <= {Kind.F, Kind.I}:
            return m < other_m
        if self.is_in_order(stage, kind) or self.is_in_order(stage, other_kind):
            if kind <= other_kind and m < other_m:
                return True
            if kind >= other_kind and m > other_m:
                return False
        return None
