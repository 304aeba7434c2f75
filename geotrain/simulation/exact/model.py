"""The variables and constraints: all schedules for one choice of pooled boundaries.

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
from itertools import pairwise, product
from typing import Any

from ortools.sat.python import cp_model

from geotrain.action import Action, Kind
from geotrain.simulation.exact.case import Case
from geotrain.simulation.problem import FORWARD, Hop


@dataclass(frozen=True)
class Span:
    """An action or a transfer whose start is to be found."""

    start: Any
    size: int

    @property
    def end(self) -> Any:
        return self.start + self.size


class Model:
    """What a solver is asked."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.cp = cp_model.CpModel()
        self.step = self._time("step")
        self.actions: dict[tuple[int, int, Kind, int], Span] = {}
        """By pipeline, stage, kind, microbatch."""
        self.straight: dict[tuple[int, int], Any] = {}
        """By pipeline and microbatch: the last stage of a slot with several goes from F to I, without R."""
        self.fused: dict[tuple[int, int, int], Any] = {}
        """By pipeline, stage and microbatch: I and W are one B; only where that may save memory."""
        self.order: dict[tuple[int, Action, Action], Any] = {}
        """By pipeline and two actions of a slot, the lower one first: it comes before the other."""
        for pipeline in self.case.pipelines:
            for slot in range(self.case.shape.num_stages):
                self._slot(pipeline, slot)
        self._transfers()
        self.cp.minimize(self.step)

    # The words of the model.

    def _time(self, name: str) -> Any:
        return self.cp.new_int_var(0, self.case.horizon, name)

    def _after(self, earlier: Any, later: Any) -> None:
        self.cp.add(earlier <= later)

    def _in_order(self, spans: list[Span]) -> None:
        for one, other in pairwise(spans):
            self._after(one.end, other.start)

    def _busy(self, span: Span, present: Any = True) -> Any:
        return self.cp.new_optional_fixed_size_interval_var(span.start, span.size, present, "")

    def _all(self, pipeline: int, stage: int, kind: Kind) -> list[Span]:
        """That action for every microbatch; none where the stage does not do it."""
        keys = [(pipeline, stage, kind, m) for m in self.case.microbatches]
        return [self.actions[key] for key in keys if key in self.actions]

    # What a slot does.

    def _slot(self, pipeline: int, slot: int) -> None:
        """All actions of a slot, one at a time, within its memory; the optimizer after them."""
        busy = []
        for stage, m in product(self.case.stages_of(slot), self.case.microbatches):
            busy += self._microbatch(pipeline, stage, m)
        self.cp.add_no_overlap(busy)
        for stage in self.case.stages_of(slot):
            for kind in Kind:
                if self.case.is_in_order(stage, kind):
                    self._in_order(self._all(pipeline, stage, kind))
            for w in self._all(pipeline, stage, Kind.W):
                self._after(w.end + int(self.case.finish[slot]), self.step)
        self._room(pipeline, slot)
        self._workspace(pipeline, slot)
        if self.case.memory_binds(slot):
            self._memory(pipeline, slot)

    def _microbatch(self, pipeline: int, stage: int, m: int) -> list[Any]:
        """What a stage does for one microbatch; returns the times at which its slot is busy with that."""
        size = {kind: int(self.case.durations[kind, stage]) for kind in Kind}

        def act(kind: Kind, start: Any = None) -> Span:
            name = f"{pipeline}:{stage}{kind.name}{m}"
            span = Span(self._time(name) if start is None else start, size[kind])
            self.actions[pipeline, stage, kind, m] = span
            return span

        forward = act(Kind.F)
        if self.case.goes_straight(stage):
            backward = act(Kind.I, forward.end)
            busy = [self._busy(Span(forward.start, size[Kind.F] + size[Kind.I]))]
        else:
            backward = act(Kind.I)
            self._after(forward.end, backward.start)
            busy = [self._busy(forward), self._busy(backward)]
            if self.case.shape.recompute:
                again = act(Kind.R)
                if self.case.may_go_straight(stage):
                    straight = self.straight[pipeline, m] = self.cp.new_bool_var("")
                    self.cp.add(backward.start == forward.end).only_enforce_if(straight)
                    # Then it is F that brings back what R would.
                    self.cp.add(again.start == forward.start).only_enforce_if(straight)
                present = self.recomputes(pipeline, stage, m)
                self.cp.add(forward.end <= again.start).only_enforce_if(present)
                self.cp.add(again.end <= backward.start).only_enforce_if(present)
                busy.append(self._busy(again, present))
        if size[Kind.W] == 0:
            act(Kind.W, backward.end)
            return busy
        weights = act(Kind.W)
        self._after(backward.end, weights.start)
        if self.case.may_fuse(stage):
            fused = self.fused[pipeline, stage, m] = self.cp.new_bool_var("")
            self.cp.add(weights.start == backward.end).only_enforce_if(fused)
        return [*busy, self._busy(weights)]

    def recomputes(self, pipeline: int, stage: int, m: int) -> Any:
        """Whether the R of that microbatch takes place."""
        return ~self.straight[pipeline, m] if self.case.may_go_straight(stage) else True

    def _room(self, pipeline: int, slot: int) -> None:
        """The cap on microbatches whose forward has begun and whose backward has not ended."""
        room = self.case.shape.room[slot]
        if self.case.shape.num_chunks > 1:
            stages = self.case.stages_of(slot)
            self._limit(pipeline, {(s, Kind.F): 1 for s in stages} | {(s, Kind.I): -1 for s in stages}, room)
            return
        forwards, backwards = (self._all(pipeline, slot, kind) for kind in (Kind.F, Kind.I))
        for backward, forward in zip(backwards, forwards[room:], strict=False):
            self._after(backward.end, forward.start)

    def _workspace(self, pipeline: int, slot: int) -> None:
        """What recompute brings back fills it until I has ended: one microbatch at a time."""
        stages = [stage for stage in self.case.stages_of(slot) if self._all(pipeline, stage, Kind.R)]
        each = list(product(stages, self.case.microbatches))
        agains, backwards = ([self.actions[pipeline, stage, k, m] for stage, m in each] for k in (Kind.R, Kind.I))
        if self.case.shape.num_chunks == 1:
            for backward, following in zip(backwards, agains[1:], strict=False):
                self._after(backward.end, following.start)
        else:
            self.cp.add_no_overlap(
                self.cp.new_optional_interval_var(
                    again.start, self._time(""), backward.end, self.recomputes(pipeline, *which), ""
                )
                for again, backward, which in zip(agains, backwards, each, strict=True)
            )

    def _memory(self, pipeline: int, slot: int) -> None:
        """F and R add when they start, I and W change what is held when they end, as in the kernel.

        B lets go of everything at its end. Its slot does nothing else until then, so its I may as well let go of it,
        and what its W would hold meanwhile is in nobody's way.
        """
        changes: dict[tuple[int, Kind], int] = {}
        for stage in self.case.stages_of(slot):
            kept, back, waiting = self.case.kept(stage), self.case.back(stage), self.case.waiting(stage)
            brings_back = Kind.R if (pipeline, stage, Kind.R, 0) in self.actions else Kind.F
            changes |= {(stage, Kind.F): kept, (stage, Kind.I): waiting - kept - back, (stage, Kind.W): -waiting}
            changes[stage, brings_back] = changes.get((stage, brings_back), 0) + back
        self._limit(pipeline, changes, int(self.case.limits[slot]))

    def _limit(self, pipeline: int, changes: dict[tuple[int, Kind], int], limit: int) -> None:
        """Whenever an action adds, what it and the actions of its slot before it have added is within the limit."""
        common = math.gcd(*changes.values())
        actions = [Action(stage, kind, m) for (stage, kind), m in product(changes, self.case.microbatches)]
        for action in actions:
            if changes[action[:2]] <= 0:
                continue
            level = changes[action[:2]] // common
            for other in actions:
                if other != action:
                    level += changes[other[:2]] // common * self._precedes(pipeline, other, action)
            rule = self.cp.add(level <= limit // common)
            if action.kind == Kind.I and self.case.may_fuse(action.stage):
                rule.only_enforce_if(~self.fused[pipeline, action.stage, action.microbatch])

    def _precedes(self, pipeline: int, one: Action, other: Action) -> Any:
        """1 if the one action comes before the other on their slot, else 0; a variable where that is open."""
        if one > other:
            return 1 - self._precedes(pipeline, other, one)
        known = self.case.is_known_to_precede(one, other)
        if known is not None:
            return int(known)
        key = (pipeline, one, other)
        if key not in self.order:
            a, b = (self.actions[(pipeline, *action)] for action in (one, other))
            first = self.order[key] = self.cp.new_bool_var("")
            self.cp.add(self._leaves(one, a) <= b.start).only_enforce_if(first)
            self.cp.add(self._leaves(other, b) <= a.start).only_enforce_if(~first)
        return self.order[key]

    def _leaves(self, action: Action, span: Span) -> Any:
        """When the next action can start; an R that may not take place holds up nobody."""
        return span.start if action.kind == Kind.R and self.case.may_go_straight(action.stage) else span.end

    # What crosses between slots.

    def _transfers(self) -> None:
        on_channel: dict[tuple[int, int], list[Span]] = defaultdict(list)
        hops_of_channel: dict[int, int] = defaultdict(int)
        turns: list[Span] = []
        for hop in self.case.problem.hops:
            channel = int(self.case.channel[hop.direction, hop.stage])
            hops_of_channel[channel] += 1
            for pipeline in self.case.pipelines:
                sent = self._hop(hop, pipeline)
                on_channel[-1 if self.case.wiring.is_pooled(hop) else pipeline, channel] += sent
                if self.case.wiring.is_pooled(hop) and len(turns) < len(self.case.pipelines):
                    turns.append(sent[0])
        self._in_order(turns)  # pipelines are alike, so they can be numbered by their turn on a channel they share
        for (whose, channel), sent in on_channel.items():
            if whose == -1 or hops_of_channel[channel] > 1:
                self.cp.add_no_overlap([self._busy(span) for span in sent])

    def _hop(self, hop: Hop, pipeline: int) -> list[Span]:
        """Results of a stage on their way to the next; returns when they hold the channel."""
        kind, there = (Kind.F, hop.stage + 1) if hop.direction == FORWARD else (Kind.I, hop.stage - 1)
        occupancy, latency = (int(row[hop.direction, hop.stage]) for row in (self.case.occupancy, self.case.latency))
        made = [span.end for span in self._all(pipeline, hop.stage, kind)]
        needed = [span.start for span in self._all(pipeline, there, kind)]
        if kind == Kind.I:
            made = [end + self._until_sent(pipeline, hop.stage, m) for m, end in enumerate(made)]
        if occupancy == 0:
            self._feed(hop, made, [start - latency for start in needed])
            return []
        sent = [Span(self._time(f"{pipeline}:{hop.stage}>{there}.{m}"), occupancy) for m in self.case.microbatches]
        self._feed(hop, made, [span.start for span in sent])
        self._in_order(sent)
        for span, start in zip(sent, needed, strict=True):
            self._after(span.end + latency, start)
        return sent

    def _until_sent(self, pipeline: int, stage: int, m: int) -> Any:
        """From the end of I until the gradient can leave."""
        return self.fused.get((pipeline, stage, m), 0) * int(self.case.durations[Kind.W, stage])

    def _feed(self, hop: Hop, made: list[Any], taken: list[Any]) -> None:
        """Each result is made before it is taken, in order; if they are made in any order, before the k-th is taken."""
        if hop.direction == FORWARD or self.case.is_in_order(hop.stage, Kind.I):
            for end, start in zip(made, taken, strict=True):
                self._after(end, start)
            return
        for k, start in enumerate(taken):
            ready = [self.cp.new_bool_var("") for _ in made]
            for end, is_ready in zip(made, ready, strict=True):
                self.cp.add(end <= start).only_enforce_if(is_ready)
            self.cp.add(sum(ready) > k)
