"""A lower bound of the step: what no schedule can beat on the plan's slots, links and memory.

It holds for as many chunks of layers per stage as the plan has, one unless it is interleaved: with more, the first
microbatch reaches the last slot sooner.

A floor is the time before a resource can first be used, what it must do, and the least that must follow:

- a slot computes all its microbatches, after the first has come down the pipeline; their forwards alone, before the
  last one's round trip; their backwards alone, after the first one's;
- a WAN channel carries all its bytes, between the first result before it and the last microbatch's way home;
- a stage that can hold only n microbatches sends them out in rounds of n: no round begins before the one before it is
  back. What slots and channels behind it must do for the last round comes after all rounds before.

Any schedule may split backward, recompute while it waits and, unless the plan says otherwise, pool a cell's pairs, so
the floors assume all of that.
"""

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from geotrain.action import Kind
from geotrain.network import Path
from geotrain.simulation.problem import BACKWARD, FORWARD, Hop, Problem
from geotrain.simulation.result import Bound
from geotrain.timeline import Floats, Ints

_ROUNDING = 1e-12
"""Sums of floats may come out too large by so much, and a bound must not."""


def lower_bound(problem: Problem) -> Bound:
    """The largest floor and its name."""
    floors = _Floors(problem)
    total, binding = max([*floors.of_slots(), *floors.of_channels()], key=lambda floor: floor[0])
    return Bound(total_s=total * (1 - _ROUNDING), binding=binding)


class _Floors:
    """All floors of a problem; arrays are per stage of the model."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.slots = len(problem.plan.stages)
        self.finish = problem.seconds(problem.finish)
        costs = problem.costs
        self.forward = np.array([c.forward_s for c in costs])
        limits = np.tile(problem.limits(split=True), len(costs) // self.slots)
        splits = -problem.held(split=True)[Kind.W] <= limits  # otherwise what one W needs does not fit
        self.weight_grad = np.array([c.weight_grad_s for c in costs]) * splits
        self.input_grad = np.array([c.backward_s for c in costs]) - self.weight_grad
        recompute = np.array([c.recompute_s for c in costs]) * problem.shape.recompute
        recompute[-1] = 0.0  # the last stage may go straight from forward to backward
        self.recompute = recompute

    @cached_property
    def hop_s(self) -> Floats:
        """[direction, stage]: the fastest transfer of the stage's result."""
        hop_s = np.zeros((2, len(self.forward)))
        for hop in self.problem.hops:
            latency = min(path.latency_s for path in self._paths(hop))
            hop_s[hop.direction, hop.stage] = self._fastest_s(hop) + latency
        return hop_s

    def _paths(self, hop: Hop) -> list[Path]:
        return [hop.own] if self.problem.plan.wan.sharing == "spatial" else [hop.own, hop.pooled]

    def _fastest_s(self, hop: Hop) -> float:
        rate = min(max(path.rate for path in self._paths(hop)), hop.capacity)
        return self.problem.transfer_bytes / rate

    @cached_property
    def head(self) -> Floats:
        """Earliest start of the stage's first forward."""
        return np.concatenate([[0.0], np.cumsum(self.forward[:-1] + self.hop_s[FORWARD, :-1])])

    @cached_property
    def back(self) -> Floats:
        """Least time from the end of an input gradient to the end of the same microbatch's on stage 0."""
        return np.concatenate([[0.0], np.cumsum(self.hop_s[BACKWARD, 1:] + self.input_grad[:-1])])

    @cached_property
    def tail(self) -> Floats:
        """Least time from the end of an input gradient to the end of the step."""
        own = self.weight_grad + self.finish[np.arange(len(self.forward)) % self.slots]
        return np.asarray(np.maximum.accumulate(own - self.back) + self.back)

    @cached_property
    def trip(self) -> Floats:
        """Least time from the start of a stage's forward to the end of its input gradient, for one microbatch."""
        turn = self.forward[-1] + self.input_grad[-1]
        around = self.head[-1] - self.head + turn + self.back[-1] - self.back
        wait = around - self.forward - self.input_grad
        around[:-1] += np.maximum(self.recompute - wait, 0.0)[:-1]
        around[-1] = turn
        return np.asarray(around)

    @cached_property
    def rounds(self) -> list[tuple[Ints, Ints, Floats]]:
        """Per stage: rounds before the last that memory forces, microbatches in the last, and how long a round takes.

        Twice: for what is held from F to I, and for what is held from F to W.
        """
        microbatches = self.problem.plan.num_microbatches
        if len(self.forward) > self.slots:  # chunks share a slot's memory in ways that rounds do not describe
            return []
        rooms = [(np.array(self.problem.shape.room), self.trip)]
        if not self.problem.shape.recompute:
            rooms.append((self._room_until_w(), self.trip + self.weight_grad))
        rounds = []
        for room, length in rooms:
            size = np.minimum(room, microbatches)
            before = (microbatches - 1) // size
            if before.any():
                rounds.append((before, microbatches - before * size, length))
        return rounds

    def _room_until_w(self) -> Ints:
        """Per stage: microbatches that can be between the start of their F and the end of their W."""
        rooms = []
        for cost, available in zip(self.problem.costs, self.problem.available_bytes, strict=True):
            memory = cost.memory
            kept = min(memory.weight_grad_bytes, memory.activation_bytes)
            others = (available - memory.activation_bytes) / kept if kept else math.inf
            rooms.append(1 + int(min(others + 1e-9, self.problem.plan.num_microbatches)))
        return np.array(rooms)

    def _from_rounds(self, stage: int, ready: float, each: float, home: float) -> tuple[float, bool]:
        """Floor of a resource at or behind `stage`, and whether memory is part of it.

        `ready` is when the first microbatch can reach it, `each` what it does for one, `home` the least from its last
        work to the end of the last input gradient on stage 0.
        """
        microbatches = self.problem.plan.num_microbatches
        plain = ready + microbatches * each + home + float(self.tail[stage] - self.back[stage])
        total = plain
        upstream = slice(stage + 1)
        for before, last, length in self.rounds:
            limited = before[upstream] * length[upstream] + ready + last[upstream] * each + home
            limited = limited - self.back[upstream] + self.tail[upstream]
            total = max(total, float(limited.max()))
        return total, total > plain * (1 + 1e-12)

    def of_slots(self) -> list[tuple[float, str]]:
        """Compute, and one microbatch's way."""
        way = self.head[-1] + self.forward[-1] + self.input_grad[-1] + self.tail[-1]
        floors = [(float(way), "one microbatch's way through the pipeline and back")]
        for slot in range(self.slots):
            floors += self._of_slot(slot)
        return floors

    def _of_slot(self, slot: int) -> Iterator[tuple[float, str]]:
        head, back, trip = (float(times[slot]) for times in (self.head, self.back, self.trip))
        forward, again = float(self.forward[slot]), float((self.recompute + self.input_grad)[slot])
        urgent = self.forward + self.recompute + self.input_grad
        each, weights = (float(times[slot :: self.slots].sum()) for times in (urgent, self.weight_grad))
        compute = f"compute of stage {slot}"
        forwards = f"forwards of stage {slot}, then the last one's round trip"
        backwards = f"first round trip from stage {slot}, then its backwards"
        microbatches, finish = self.problem.plan.num_microbatches, float(self.finish[slot])
        yield head + microbatches * (each + weights) + finish, compute
        # One microbatch at a time is recomputed, so all other Rs, Is and all Ws come after the first I.
        own_weight = float(self.weight_grad[slot])
        yield head + trip - again + microbatches * (again + own_weight) + finish, backwards
        for name, ready, each_s, home in (
            (compute, head, each, back),
            (forwards, head, forward, trip - forward + back),
            (backwards, head + trip - again, again, back),
        ):
            total, limited = self._from_rounds(slot, ready, each_s, home)
            yield total, f"{name}, in rounds that memory allows" if limited else name

    def of_channels(self) -> list[tuple[float, str]]:
        """Bytes over the WAN."""
        problem, plan = self.problem, self.problem.plan
        floors = []
        for hop in problem.hops:
            if not hop.own.crosses_wan:
                continue
            rate = min(hop.own.rate, hop.capacity / plan.num_pipelines)
            each = problem.transfer_bytes / rate
            arrive = self.hop_s[hop.direction, hop.stage] - self._fastest_s(hop)
            turn = self.head[-1] + self.forward[-1]
            if hop.direction == FORWARD:
                stage = hop.stage
                ready = self.head[stage] + self.forward[stage]
                home = arrive + turn - self.head[stage + 1] + self.input_grad[-1] + self.back[-1]
            else:
                stage = hop.stage - 1
                ready = turn + self.input_grad[-1] + self.back[-1] - self.back[hop.stage]
                home = arrive + self.input_grad[stage] + self.back[stage]
            total, limited = self._from_rounds(stage, float(ready), each, float(home))
            where = f"bytes over the WAN from {plan.stages[hop.source].dc} to {plan.stages[hop.target].dc}"
            floors.append((total, f"{where}, in rounds that memory allows" if limited else where))
        return floors
