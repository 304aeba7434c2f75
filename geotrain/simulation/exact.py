"""The best possible step of a small case: the simulator's rules as a constraint model, solved with proof.

An oracle for tests and for judging heuristics; needs OR-Tools (the extra `exact`). It searches all schedules at once:
any order of actions on a slot, backward split or not, any order of transfers on a channel, any boundaries pooled.
Only a link whose capacity binds is beyond it.

What keeps the model small holds for some best schedule, so nothing is lost:

- **Everything in order of microbatch.** Take the actions of one kind, stage and pipeline, or their transfers: they all
  last equally long. Sort their times and hand them to the microbatches in that order. Slots and channels are busy
  exactly when they were. As many forwards have begun and backwards ended at any time as before, so memory is the same.
  And a rule "B(m) starts at least x after A(m) ended" still holds: before the k-th B there were k Bs, so k As, so
  the k-th A. With that, channels of one pipeline and the cap on microbatches in flight are mere precedences.
- **The last stage goes straight from F to I** and so recomputes nothing, unless its slot has other stages too. Given
  any order there, drop each R, move an F to right before each I, in order of arrival, and let all start as early as
  they can. An action that then ends at t ends a run of work without a pause since some arrival, the i-th. Before
  that arrival at most i - 1 microbatches had an F, so the order given did all the work of that run after it as well:
  every I and W ends no later than it did. Memory is the same during each I and after it, and less at other times.

A fused B sends its gradient at its end, a split one earlier, so I and W apart can do all that B does, but for memory:
what W needs may be more than what I lets go. Where that can matter, each backward may also be fused.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from geotrain.action import Kind, pack
from geotrain.errors import InputError
from geotrain.schedule import Orders
from geotrain.simulation.problem import FORWARD, Hop, Problem
from geotrain.simulation.wiring import Wiring
from geotrain.timeline import Ints
from geotrain.units import plural

_MOST_ACTIONS = 600
_MOST_BOUNDARIES = 3
_MOST_UNITS = 1 << 50
"""Longest horizon in units of the model's clock; a finer clock would be finer than the float that is handed back."""
_SLACK = 1.3
"""Steps up to so much longer than one that is known are looked at: the solver is lost if the range is too narrow."""


@dataclass(frozen=True, kw_only=True)
class Exact:
    """The best schedule found, and what no schedule can beat."""

    step_s: float
    """Infinite if none was found in time."""
    bound_s: float
    optimal: bool
    """The step is proven to be the shortest possible."""
    pooled: frozenset[int]
    """Boundaries of slot stages that the best schedule pools."""
    orders: tuple[Orders, ...]
    """Per pipeline that is simulated. Backward is I and W, or B where only that fits or W takes no time."""

    @property
    def gap(self) -> float:
        """How much shorter the step may still get, at most, as a share of the bound; 0 is proven."""
        if self.step_s <= self.bound_s:
            return 0.0
        return self.step_s / self.bound_s - 1 if self.bound_s > 0 else math.inf


def solve(problem: Problem, *, seconds: float = 30.0, hint_step_s: float | None = None) -> Exact:
    """The shortest step of all schedules, or the best that is found in about that time.

    Same input, same answer, unless the machine is so slow that the wall clock has to stop the solver.
    `hint_step_s` is a step known to be possible; much slower ones are not looked at.
    """
    poolings = _poolings(problem)
    _refuse_too_much(problem, poolings)
    known = math.inf if hint_step_s is None else float(problem.ticks(hint_step_s))
    best = _Answer(step=math.inf, bound=math.inf)
    bound = math.inf
    left_s = seconds
    for number, pooled in enumerate(poolings):
        model = _Model(problem, Wiring(problem, pooled), most=known * _SLACK)
        answer = model.solve(left_s / (len(poolings) - number))
        left_s -= answer.used_s
        known, bound = min(known, answer.step), min(bound, answer.bound)
        if answer.step < best.step:
            best = answer
    if math.isinf(bound):
        assert hint_step_s is not None, "one microbatch after the other always fits"
        raise InputError(f"hint_step_s is {hint_step_s:g}, but no schedule comes near that")

    def in_seconds(ticks: float) -> float:
        return float(problem.seconds(np.array(ticks)))

    return Exact(
        step_s=in_seconds(best.step),
        bound_s=in_seconds(min(bound, best.step)),
        optimal=bound >= best.step,
        pooled=best.pooled,
        orders=best.orders,
    )


def _poolings(problem: Problem) -> list[frozenset[int]]:
    """Every choice of boundaries to pool, where that makes a transfer quicker; otherwise it can only do harm."""
    if problem.plan.wan.sharing == "spatial":
        return [frozenset()]
    size = problem.transfer_bytes
    helped = {hop.boundary for hop in problem.hops if hop.pooled.occupancy_s(size) < hop.own.occupancy_s(size)}
    if len(helped) > _MOST_BOUNDARIES:
        raise InputError(
            f"{len(helped)} boundaries may be pooled or not, the exact search takes at most {_MOST_BOUNDARIES}"
        )
    return [frozenset(chosen) for count in range(len(helped) + 1) for chosen in combinations(sorted(helped), count)]


def _refuse_too_much(problem: Problem, poolings: list[frozenset[int]]) -> None:
    shape = problem.shape
    kinds = 3 * shape.num_model_stages + (shape.num_model_stages - 1) * shape.recompute
    for wiring in (Wiring(problem, pooled) for pooled in poolings):
        actions = wiring.num_pipelines * shape.num_microbatches * kinds
        if actions > _MOST_ACTIONS:
            raise InputError(
                f"{plural(shape.num_model_stages, 'stage')}, {plural(shape.num_microbatches, 'microbatch')} "
                f"and {plural(wiring.num_pipelines, 'pipeline')} make {actions} actions, "
                f"the exact search takes at most {_MOST_ACTIONS}"
            )
        for source, target in wiring.links:
            raise InputError(
                f"the capacity of the link from {source} to {target} is shared, which the exact search cannot do"
            )


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What one model came to, in ticks. Infinite: no schedule is quick enough, or none was found."""

    step: float
    bound: float
    used_s: float = 0.0
    pooled: frozenset[int] = frozenset()
    orders: tuple[Orders, ...] = ()


@dataclass(frozen=True)
class _Span:
    """An action or a transfer whose start is to be found."""

    start: Any
    size: int

    @property
    def end(self) -> Any:
        return self.start + self.size


_Step = tuple[int, Kind, int]
"""Stage, kind, microbatch."""


class _Model:
    """All schedules for one choice of pooled boundaries."""

    def __init__(self, problem: Problem, wiring: Wiring, *, most: float) -> None:
        """`most`: longest step, in ticks, that is looked at."""
        self.problem, self.wiring, self.shape = problem, wiring, problem.shape
        self.stages = range(self.shape.num_model_stages)
        self.microbatches = range(self.shape.num_microbatches)
        self.pipelines = range(wiring.num_pipelines)
        self.channel, occupancy, latency, _ = wiring.hop_rows()
        self._set_clock(problem.durations, occupancy, latency, problem.finish[0] + problem.finish[1], most)

        self.cp = cp_model.CpModel()
        self.step = self._time("step")
        self.actions: dict[tuple[int, int, Kind, int], _Span] = {}
        """By pipeline, stage, kind, microbatch."""
        self.straight: dict[tuple[int, int], Any] = {}
        """By pipeline and microbatch: the last stage of a slot with several goes from F to I, without R."""
        self.fused: dict[tuple[int, int, int], Any] = {}
        """By pipeline, stage and microbatch: I and W are one B; only where that may save memory."""
        self.order: dict[tuple[int, _Step, _Step], Any] = {}
        """By pipeline and two actions of a slot, the lower one first: it comes before the other."""
        self.held = problem.held(split=True)
        at_once = self.durations[Kind.W] == 0  # W right after I, as one B: nothing waits in between
        self.held[Kind.I, at_once] += self.held[Kind.W, at_once]
        self.held[Kind.W, at_once] = 0
        self.limits = problem.limits(split=True)
        for pipeline in self.pipelines:
            for slot in range(self.shape.num_stages):
                self._slot(pipeline, slot)
        self._transfers()
        self.cp.minimize(self.step)

    def _set_clock(self, durations: Ints, occupancy: Ints, latency: Ints, finish: Ints, most: float) -> None:
        """The coarsest clock on which all times are whole; if even that is too fine, times are cut, not rounded up."""
        moves = durations[[Kind.F, Kind.R, Kind.I, Kind.W]].sum() + occupancy.sum() + latency.sum()
        serial = int(moves) * len(self.microbatches) * len(self.pipelines) + int(finish.max())
        times = np.concatenate([durations.ravel(), occupancy.ravel(), latency.ravel(), finish])
        self.unit = max(int(np.gcd.reduce(times)), serial // _MOST_UNITS + 1 if serial > _MOST_UNITS else 1)
        self.durations, self.occupancy = durations // self.unit, occupancy // self.unit
        self.latency, self.finish = latency // self.unit, finish // self.unit
        self.horizon = int(min(serial, most)) // self.unit

    # The words of the model.

    def _time(self, name: str) -> Any:
        return self.cp.new_int_var(0, self.horizon, name)

    def _after(self, earlier: Any, later: Any) -> None:
        self.cp.add(earlier <= later)

    def _in_order(self, spans: list[_Span]) -> None:
        for one, other in pairwise(spans):
            self._after(one.end, other.start)

    def _busy(self, span: _Span, present: Any = True) -> Any:
        return self.cp.new_optional_fixed_size_interval_var(span.start, span.size, present, "")

    def _all(self, pipeline: int, stage: int, kind: Kind) -> list[_Span]:
        """That action for every microbatch; none where the stage does not do it."""
        keys = [(pipeline, stage, kind, m) for m in self.microbatches]
        return [self.actions[key] for key in keys if key in self.actions]

    # What a slot does.

    def _slot(self, pipeline: int, slot: int) -> None:
        """All actions of a slot, one at a time, within its memory; the optimizer after them."""
        busy = []
        for stage, m in product(self._stages_of(slot), self.microbatches):
            busy += self._microbatch(pipeline, stage, m)
        self.cp.add_no_overlap(busy)
        for stage in self._stages_of(slot):
            for kind in Kind:
                if self._is_in_order(stage, kind):
                    self._in_order(self._all(pipeline, stage, kind))
            for w in self._all(pipeline, stage, Kind.W):
                self._after(w.end + int(self.finish[slot]), self.step)
        self._room(pipeline, slot)
        self._workspace(pipeline, slot)
        if self._memory_binds(slot):
            self._memory(pipeline, slot)

    def _microbatch(self, pipeline: int, stage: int, m: int) -> list[Any]:
        """What a stage does for one microbatch; returns the times at which its slot is busy with that."""
        size = {kind: int(self.durations[kind, stage]) for kind in Kind}

        def act(kind: Kind, start: Any = None) -> _Span:
            name = f"{pipeline}:{stage}{kind.name}{m}"
            span = _Span(self._time(name) if start is None else start, size[kind])
            self.actions[pipeline, stage, kind, m] = span
            return span

        forward = act(Kind.F)
        if self._goes_straight(stage):
            backward = act(Kind.I, forward.end)
            busy = [self._busy(_Span(forward.start, size[Kind.F] + size[Kind.I]))]
        else:
            backward = act(Kind.I)
            self._after(forward.end, backward.start)
            busy = [self._busy(forward), self._busy(backward)]
            if self.shape.recompute:
                again = act(Kind.R)
                if self._may_go_straight(stage):
                    straight = self.straight[pipeline, m] = self.cp.new_bool_var("")
                    self.cp.add(backward.start == forward.end).only_enforce_if(straight)
                    # Then it is F that brings back what R would.
                    self.cp.add(again.start == forward.start).only_enforce_if(straight)
                present = self._recomputes(pipeline, stage, m)
                self.cp.add(forward.end <= again.start).only_enforce_if(present)
                self.cp.add(again.end <= backward.start).only_enforce_if(present)
                busy.append(self._busy(again, present))
        if size[Kind.W] == 0:
            act(Kind.W, backward.end)
            return busy
        weights = act(Kind.W)
        self._after(backward.end, weights.start)
        if self._may_fuse(stage):
            fused = self.fused[pipeline, stage, m] = self.cp.new_bool_var("")
            self.cp.add(weights.start == backward.end).only_enforce_if(fused)
        return [*busy, self._busy(weights)]

    def _recomputes(self, pipeline: int, stage: int, m: int) -> Any:
        """Whether the R of that microbatch takes place."""
        return ~self.straight[pipeline, m] if self._may_go_straight(stage) else True

    def _room(self, pipeline: int, slot: int) -> None:
        """The cap on microbatches whose forward has begun and whose backward has not ended."""
        room = self.shape.room[slot]
        if self.shape.num_chunks > 1:
            stages = self._stages_of(slot)
            self._limit(pipeline, {(s, Kind.F): 1 for s in stages} | {(s, Kind.I): -1 for s in stages}, room)
            return
        forwards, backwards = (self._all(pipeline, slot, kind) for kind in (Kind.F, Kind.I))
        for backward, forward in zip(backwards, forwards[room:], strict=False):
            self._after(backward.end, forward.start)

    def _workspace(self, pipeline: int, slot: int) -> None:
        """What recompute brings back fills it until I has ended: one microbatch at a time."""
        stages = [stage for stage in self._stages_of(slot) if self._all(pipeline, stage, Kind.R)]
        spans = [(self.actions[pipeline, stage, Kind.R, m], self.actions[pipeline, stage, Kind.I, m],
                  self._recomputes(pipeline, stage, m)) for stage, m in product(stages, self.microbatches)]  # fmt: skip
        if self.shape.num_chunks == 1:
            for (_, backward, _), (following, _, _) in pairwise(spans):
                self._after(backward.end, following.start)
        else:
            self.cp.add_no_overlap(
                self.cp.new_optional_interval_var(again.start, self._time(""), backward.end, present, "")
                for again, backward, present in spans
            )

    def _memory(self, pipeline: int, slot: int) -> None:
        """F and R add when they start, I and W change what is held when they end, as in the kernel.

        B lets go of everything at its end. Its slot does nothing else until then, so its I may as well let go of it,
        and what its W would hold meanwhile is in nobody's way.
        """
        changes: dict[tuple[int, Kind], int] = {}
        for stage in self._stages_of(slot):
            kept, back, waiting = self._kept(stage), self._back(stage), self._waiting(stage)
            brings_back = Kind.R if (pipeline, stage, Kind.R, 0) in self.actions else Kind.F
            changes |= {(stage, Kind.F): kept, (stage, Kind.I): waiting - kept - back, (stage, Kind.W): -waiting}
            changes[stage, brings_back] = changes.get((stage, brings_back), 0) + back
        self._limit(pipeline, changes, int(self.limits[slot]))

    def _limit(self, pipeline: int, changes: dict[tuple[int, Kind], int], limit: int) -> None:
        """Whenever an action adds, what it and the actions of its slot before it have added is within the limit."""
        common = math.gcd(*changes.values())
        actions = [(stage, kind, m) for (stage, kind), m in product(changes, self.microbatches)]
        for stage, kind, m in actions:
            if changes[stage, kind] <= 0:
                continue
            level = changes[stage, kind] // common
            for other in actions:
                if other != (stage, kind, m):
                    level += changes[other[:2]] // common * self._precedes(pipeline, other, (stage, kind, m))
            rule = self.cp.add(level <= limit // common)
            if kind == Kind.I and self._may_fuse(stage):
                rule.only_enforce_if(~self.fused[pipeline, stage, m])

    def _precedes(self, pipeline: int, one: _Step, other: _Step) -> Any:
        """1 if the one action comes before the other on their slot, else 0; a variable where that is open."""
        if one > other:
            return 1 - self._precedes(pipeline, other, one)
        known = self._is_known_to_precede(one, other)
        if known is not None:
            return int(known)
        key = (pipeline, one, other)
        if key not in self.order:
            a, b = (self.actions[(pipeline, *step)] for step in (one, other))
            first = self.order[key] = self.cp.new_bool_var("")
            self.cp.add(self._leaves(one, a) <= b.start).only_enforce_if(first)
            self.cp.add(self._leaves(other, b) <= a.start).only_enforce_if(~first)
        return self.order[key]

    def _leaves(self, step: _Step, span: _Span) -> Any:
        """When the next action can start; an R that may not take place holds up nobody."""
        return span.start if step[1] == Kind.R and self._may_go_straight(step[0]) else span.end

    def _is_known_to_precede(self, one: _Step, other: _Step) -> bool | None:
        (stage, kind, m), (other_stage, other_kind, other_m) = one, other
        if stage != other_stage:
            return None
        if m == other_m:
            return kind < other_kind
        if self._goes_straight(stage) and {kind, other_kind} <= {Kind.F, Kind.I}:
            return m < other_m
        if self._is_in_order(stage, kind) or self._is_in_order(stage, other_kind):
            if kind <= other_kind and m < other_m:
                return True
            if kind >= other_kind and m > other_m:
                return False
        return None

    def _stages_of(self, slot: int) -> range:
        return self.stages[slot :: self.shape.num_stages]

    def _goes_straight(self, stage: int) -> bool:
        return stage == self.stages[-1] and self.shape.num_chunks == 1

    def _is_in_order(self, stage: int, kind: Kind) -> bool:
        """Whether its microbatches come in order; not where some of them are unlike the others."""
        if kind == Kind.F:
            return True
        return not (self._may_go_straight(stage) or (kind == Kind.W and self._may_fuse(stage)))

    def _may_go_straight(self, stage: int) -> bool:
        return stage == self.stages[-1] and self.shape.num_chunks > 1 and self.shape.recompute

    def _may_fuse(self, stage: int) -> bool:
        """Whether I and W as one B may need less memory."""
        return self.held[Kind.I, stage] > 0 and self._memory_binds(stage % self.shape.num_stages)

    def _memory_binds(self, slot: int) -> bool:
        """Whether some order could hold more than there is."""
        kept, back, waiting = (max(map(of, self._stages_of(slot))) for of in (self._kept, self._back, self._waiting))
        most = len(self.microbatches) * self.shape.num_chunks
        # At most one in flight has been recomputed; where a slot has several stages, the last may go straight besides.
        worked_on = back * min(self.shape.num_chunks, 2)
        held = [n * kept + (most - n) * waiting + worked_on for n in (1, min(most, self.shape.room[slot]))]
        return max(most * waiting, *held) > int(self.limits[slot])

    def _kept(self, stage: int) -> int:
        """Memory of a microbatch between F and I."""
        return self._waiting(stage) - int(self.held[Kind.I, stage]) - self._back(stage)

    def _back(self, stage: int) -> int:
        """What recompute adds to it."""
        return int(self.held[Kind.R, stage])

    def _waiting(self, stage: int) -> int:
        """Memory of a microbatch between I and W."""
        return -int(self.held[Kind.W, stage])

    # What crosses between slots.

    def _transfers(self) -> None:
        on_channel: dict[tuple[int, int], list[_Span]] = defaultdict(list)
        hops_of_channel: dict[int, int] = defaultdict(int)
        turns: list[_Span] = []
        for hop in self.problem.hops:
            channel = int(self.channel[hop.direction, hop.stage])
            hops_of_channel[channel] += 1
            for pipeline in self.pipelines:
                sent = self._hop(hop, pipeline)
                on_channel[-1 if self.wiring.is_pooled(hop) else pipeline, channel] += sent
                if self.wiring.is_pooled(hop) and len(turns) < len(self.pipelines):
                    turns.append(sent[0])
        self._in_order(turns)  # pipelines are alike, so they can be numbered by their turn on a channel they share
        for (whose, channel), sent in on_channel.items():
            if whose == -1 or hops_of_channel[channel] > 1:
                self.cp.add_no_overlap([self._busy(span) for span in sent])

    def _hop(self, hop: Hop, pipeline: int) -> list[_Span]:
        """Results of a stage on their way to the next; returns when they hold the channel."""
        kind, there = (Kind.F, hop.stage + 1) if hop.direction == FORWARD else (Kind.I, hop.stage - 1)
        occupancy, latency = (int(row[hop.direction, hop.stage]) for row in (self.occupancy, self.latency))
        made = [span.end for span in self._all(pipeline, hop.stage, kind)]
        needed = [span.start for span in self._all(pipeline, there, kind)]
        if kind == Kind.I:
            made = [end + self._until_sent(pipeline, hop.stage, m) for m, end in enumerate(made)]
        if occupancy == 0:
            self._feed(hop, made, [start - latency for start in needed])
            return []
        sent = [_Span(self._time(f"{pipeline}:{hop.stage}>{there}.{m}"), occupancy) for m in self.microbatches]
        self._feed(hop, made, [span.start for span in sent])
        self._in_order(sent)
        for span, start in zip(sent, needed, strict=True):
            self._after(span.end + latency, start)
        return sent

    def _until_sent(self, pipeline: int, stage: int, m: int) -> Any:
        """From the end of I until the gradient can leave."""
        return self.fused.get((pipeline, stage, m), 0) * int(self.durations[Kind.W, stage])

    def _feed(self, hop: Hop, made: list[Any], taken: list[Any]) -> None:
        """Each result is made before it is taken, in order; if they are made in any order, before the k-th is taken."""
        if hop.direction == FORWARD or self._is_in_order(hop.stage, Kind.I):
            for end, start in zip(made, taken, strict=True):
                self._after(end, start)
            return
        for k, start in enumerate(taken):
            ready = [self.cp.new_bool_var("") for _ in made]
            for end, is_ready in zip(made, ready, strict=True):
                self.cp.add(end <= start).only_enforce_if(is_ready)
            self.cp.add(sum(ready) > k)

    # Answers.

    def solve(self, seconds: float) -> _Answer:
        """The shortest step, if that is found and proven in time."""
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = 1
        parameters.random_seed = 0
        parameters.linearization_level = 0
        # Halve the range of the step while that is cheap: with a fine clock, raising the bound by ones takes for ever.
        parameters.binary_search_num_conflicts = 1000
        parameters.max_deterministic_time = max(seconds, 0.0)  # work that takes about that long
        parameters.max_time_in_seconds = 4 * max(seconds, 0.0) + 1
        status = solver.solve(self.cp)
        used_s = solver.response_proto.deterministic_time
        assert status != cp_model.MODEL_INVALID, self.cp.validate()
        if status == cp_model.INFEASIBLE:
            return _Answer(step=math.inf, bound=math.inf, used_s=used_s)
        bound = math.ceil(solver.best_objective_bound) * self.unit
        if status == cp_model.UNKNOWN:
            return _Answer(step=math.inf, bound=bound, used_s=used_s)
        return _Answer(
            step=solver.value(self.step) * self.unit,
            bound=bound,
            used_s=used_s,
            pooled=self.wiring.pooled,
            orders=tuple(self._orders(solver, pipeline) for pipeline in self.pipelines),
        )

    def _orders(self, solver: cp_model.CpSolver, pipeline: int) -> Orders:
        """What a pipeline does, in order of time."""
        slots: list[list[tuple[int, int, int, int, int]]] = [[] for _ in range(self.shape.num_stages)]
        for (whose, stage, kind, m), span in self.actions.items():
            weights = self.durations[Kind.W, stage]
            fused = weights == 0 or solver.value(self.fused.get((pipeline, stage, m), 0))
            skipped = kind == Kind.R and not solver.value(self._recomputes(pipeline, stage, m))
            if whose != pipeline or skipped or (kind == Kind.W and fused):
                continue
            shown = Kind.B if kind == Kind.I and fused else kind
            start = solver.value(span.start)
            slots[stage % len(slots)].append((start, start + span.size, m, kind, pack(stage, shown, m)))
        return Orders.of([code for *_, code in sorted(slot)] for slot in slots)
