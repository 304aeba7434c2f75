"""The planner: looks at layouts in the order of what they could at best achieve, and simulates those worth it.

Everything waits in one queue, ordered by a floor of its score. What comes first is opened: a group of layouts into
layouts with a tighter floor each, a layout into a simulation; what comes out well brings its neighbours in, with a
layer moved from one stage to another. Once the first in line cannot beat the best found, nothing in the queue can.

Most layouts are played by a few rules only; the best and its contenders are then simulated in full, and so are those
that miss deadline or budget by little. A layout that is not counts in the gap with the bound that no schedule of it
beats, so the stated gap is true at any moment.
"""

import heapq
import math
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from geotrain import interrupts
from geotrain.cluster import Cluster
from geotrain.errors import DoesNotFitError, InputError
from geotrain.planner.answer import Answer, Ending, Progress, Scored
from geotrain.planner.ask import EVALUATIONS, GOALS, Ask, Goal
from geotrain.planner.layout import Layout
from geotrain.planner.likeness import plan_likeness
from geotrain.planner.misfit import closest, no_room
from geotrain.planner.published import Estimate, published
from geotrain.planner.slots import Slots
from geotrain.planner.space import Group, Space, group_of
from geotrain.simulation.auto import SPANS, Found, quick
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.metrics import hourly_price, measure
from geotrain.simulation.play import play
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Bound
from geotrain.simulation.simulate import fastest, poolings
from geotrain.units import format_count, format_seconds, gigabytes, hours, plural
from geotrain.workload import Job

_NEARLY_BEST = 1.02
"""Layouts like one that is so close to the best are worth a look."""
_STRAIGHTENED = 4
"""Shorter ways that are tried in the end."""
_FEW_CONTENDERS = 5
"""So many layouts that may be better than the best are all played in full. More would take long and the gap would stay:
then as many as one search for a schedule takes."""
_GAIN = 1.06
"""A step simulated in full is seldom shorter than by a few rules by more than this factor."""
_PATIENCE = 8
"""Times the usual effort for layouts that so small a gain would bring within deadline and budget: what is at stake is
not the last percent."""
_ESTIMATES = 3
"""Of the published algorithm for each number of stages, should the best not fit in memory."""

Score = tuple[float, float]
Watch = Callable[[Progress], None]
Plays = dict[Hashable, Found]
"""Layouts that were simulated in full, by the likeness of their plans."""


def find_plan(
    cluster: Cluster, job: Job, ask: Ask | None = None, *, watch: Watch | None = None, plays: Plays | None = None
) -> Answer:
    """The best plan for the question; DoesNotFitError if there is none.

    The same question gets the same answer, unless the wall clock or Ctrl-C ends the search. `plays` of other searches
    save time and change nothing else.
    """
    return _Search(Space(cluster, job, ask or Ask()), watch, {} if plays is None else plays).run()


@dataclass(frozen=True)
class _Candidate:
    """A layout with its floor."""

    layout: Layout
    problem: Problem

    @cached_property
    def bound(self) -> Bound:
        return lower_bound(self.problem)

    @cached_property
    def egress(self) -> float:
        """Money for bytes over the WAN, per step."""
        link = self.problem.plan.cluster.link
        return sum(gigabytes(size) * (link(*ends).price_per_gb or 0.0) for ends, size in self.problem.wan_bytes.items())

    def rates(self, step_s: float) -> Score:
        """Seconds and money per token of a step that long."""
        plan = self.problem.plan
        cost = hourly_price(plan) * hours(step_s) + self.egress
        return step_s / plan.tokens_per_step, cost / plan.tokens_per_step


@dataclass(frozen=True, kw_only=True)
class _Simulated:
    """A layout whose step is known."""

    candidate: _Candidate
    found: Found
    rates: Score
    is_final: bool
    """As `geotrain simulate` will find it."""

    def scored(self) -> Scored:
        return Scored(result=measure(self.found.played, self.candidate.bound, self.found.gains))


class _Search:
    def __init__(self, space: Space, watch: Watch | None, plays: Plays) -> None:
        self.space, self.ask, self.watch, self.plays = space, space.ask, watch, plays
        self.started = time.monotonic()
        self.queue: list[tuple[float, int, Group | Layout | _Candidate]] = []
        self.simulated: dict[Layout, _Simulated] = {}
        self.best: _Simulated | None = None
        self.considered: set[Layout] = set()
        self.evaluations = self.pushed = self.spans = 0
        self.least_left = math.inf
        """The lowest floor of what was not worth a place in the queue."""
        self.refused: InputError | None = None
        """Why a plan cannot be simulated, where memory is not the reason."""
        self.ends: dict[Goal, Scored] = {}
        """The fastest and the cheapest plan without deadline and budget, where nothing keeps these."""

    def run(self) -> Answer:
        ending: Ending = "proven"
        baseline: _Simulated | None = None
        try:
            baseline = self._published()
            for group in self.space.groups():
                self._consider_group(group)
            ending = self._open_all()
            ending = self._settle(baseline) or ending
            if self.best is None:
                ending = self._look_without_limits() or ending
        except KeyboardInterrupt:
            if self.best is None:
                raise
            ending = "interrupted"
        if self.best is None:
            raise DoesNotFitError(self._nothing_fits(ending))
        return self._answer(self.best, baseline, ending)

    def _open_all(self) -> Ending:
        while self.queue:
            interrupts.check()
            if self.best is not None and self.queue[0][0] >= self._score(self.best) * (1 - self.ask.tolerance):
                return "proven"
            if self._is_spent():
                return "budget"
            _, _, node = heapq.heappop(self.queue)
            if isinstance(node, Group):
                self._consider_layouts(node)
            elif isinstance(node, Layout):
                self._bound(node)
            elif self._keep(self._simulate(node)):
                self._consider_neighbours(node.layout)
        return "proven"

    # The queue.

    def _push(self, floor: float, node: Group | Layout | _Candidate) -> None:
        if self.best is not None and floor >= self._score(self.best) * (1 - self.ask.tolerance):
            self.least_left = min(self.least_left, floor)
        elif math.isfinite(floor):
            self.pushed += 1
            # Rounded, and never up: what is as good as equal is taken in the order of the space.
            heapq.heappush(self.queue, (float(f"{floor * (1 - 1e-8):.9g}"), self.pushed, node))

    def _consider_group(self, group: Group) -> None:
        """Into the queue with the floor of its longest stage, on GPUs as cheap as there are."""
        slots = self.space.slots(group.tensor_parallel, group.microbatch)
        floor_s = slots.quick_floor_s(group.num_stages, group.num_pipelines, across=group.across)
        prices = [dc.price_per_gpu_hour for dc in self.space.cluster.datacenters if dc.nodes]
        gpus = group.num_stages * group.num_pipelines * group.tensor_parallel
        tokens = _tokens(slots, group.num_pipelines)
        self._push(self._allowed((floor_s / tokens, min(prices) * gpus * hours(floor_s) / tokens)), group)

    def _consider_layouts(self, group: Group) -> None:
        """Of the many ways to deal layers to stages only some get into the queue; the others count in the gap."""
        pooled_most: dict[object, Layout] = {}
        for layout in self.space.layouts(group):
            self._consider(layout)
            place = layout.placement, layout.replicas
            pooled_most[place] = max(pooled_most.get(place, layout), layout, key=lambda one: one.pipelines_per_cell)
        slots = self.space.slots(group.tensor_parallel, group.microbatch)
        for layout in pooled_most.values():
            per_s = self._goal_of(self._rates(layout, 1.0))
            within_s = self._score(self.best) / per_s if self.best is not None and per_s else slots.floor_s(layout)
            floor_s = slots.soonest_end_s(layout, within_s)
            if math.isfinite(floor_s):
                self.least_left = min(self.least_left, self._allowed(self._rates(layout, floor_s)))

    def _consider(self, layout: Layout, *, below: float = math.inf) -> None:
        """Into the queue with a floor that takes a few microseconds, if that is below a given one.

        What misses deadline or budget by little goes there too: with a layer moved it may keep them.
        """
        if layout in self.considered:
            return
        rates = self._floor_rates(layout)
        if self._goal_of(rates) >= below:
            return
        self.considered.add(layout)
        if self.ask.over(*rates) < _GAIN:
            self._push(self._goal_of(rates), layout)
        if len(self.considered) % 1024 == 0:
            self._report()

    def _floor_rates(self, layout: Layout) -> Score:
        slots = self.space.slots(layout.tensor_parallel, layout.microbatch)
        return self._rates(layout, slots.floor_s(layout))

    def _rates(self, layout: Layout, step_s: float) -> Score:
        """At least, of a step that long: without egress."""
        slots = self.space.slots(layout.tensor_parallel, layout.microbatch)
        dcs = self.space.cluster.datacenters
        gpus = [(dc, stages * layout.cells) for dc, stages in layout.placement]
        gpus += [(dc, len(layout.layers) * cells) for dc, cells in layout.replicas]
        hourly = sum(dcs[dc].price_per_gpu_hour * n for dc, n in gpus)
        cost = hourly * layout.pipelines_per_cell * layout.tensor_parallel * hours(step_s)
        tokens = _tokens(slots, layout.num_pipelines)
        return step_s / tokens, cost / tokens

    def _bound(self, layout: Layout) -> None:
        """Back into the queue with the bound of its step; under limits, also layouts like it with lower floors."""
        candidate = self._candidate(layout)
        try:
            rates = candidate.rates(candidate.bound.total_s)
        except DoesNotFitError:
            return  # not even one microbatch fits
        except InputError as error:
            self.refused = error
            return
        if math.isfinite(floor := self._allowed(rates)):
            self._push(floor, candidate)
        if self.ask.has_limits:
            self._consider_neighbours(layout, below=self._goal_of(self._floor_rates(layout)))

    def _consider_neighbours(self, layout: Layout, *, below: float = math.inf) -> None:
        for other in () if self.space.is_measured else layout.neighbours():
            self._consider(other, below=below)

    def _allowed(self, rates: Score) -> float:
        """What is to be small; infinite if deadline or budget rule it out."""
        seconds, cost = rates
        if seconds > self.ask.most_s_per_token or cost > self.ask.most_cost_per_token:
            return math.inf
        return self._goal_of(rates)

    def _goal_of(self, rates: Score) -> float:
        return rates[GOALS.index(self.ask.goal)]

    def _score(self, simulated: _Simulated) -> float:
        return self._allowed(simulated.rates)

    def _candidate(self, layout: Layout) -> _Candidate:
        return _Candidate(layout, Problem(self.space.plan(layout, self.ask.schedule)))

    def _simulate(self, candidate: _Candidate, *, thoroughly: bool = False) -> _Simulated | None:
        """Its step; thoroughly as `geotrain simulate` would find it, otherwise auto is replaced by a few good rules."""
        self.evaluations += 1
        problem = candidate.problem
        roughly = problem.plan.schedule == "auto" and not thoroughly
        try:
            found: Found | None
            if roughly:
                found = quick(problem, poolings(problem))
            else:
                found = self._play_in_full(problem) if thoroughly else fastest(problem)
        except InputError:
            return None
        if found is None:
            return None
        if found.interrupted:
            raise KeyboardInterrupt
        self.spans += found.spans if thoroughly else 0
        step_s = float(problem.seconds(np.array(found.played.step_ticks)))
        return _Simulated(candidate=candidate, found=found, rates=candidate.rates(step_s), is_final=not roughly)

    def _play_in_full(self, problem: Problem) -> Found | None:
        """The fastest schedule, which another search may know; it counts as many spans either way."""
        likeness = plan_likeness(problem.plan)
        known = self.plays.get(likeness)
        if known is not None:
            played = known.played
            return replace(known, played=play(problem, played.orders(), played.wiring.pooled))
        found = fastest(problem)
        if found is not None and not found.interrupted:
            self.plays[likeness] = found
        return found

    def _keep(self, found: _Simulated | None) -> bool:
        """Whether it is the best so far, or nearly: then layouts like it are worth a look."""
        if found is None:
            return False
        self._remember(found)
        self._take(found)
        self._report()
        return self._lacks(found) <= _NEARLY_BEST

    def _take(self, found: _Simulated) -> None:
        """Make it the best if it keeps deadline and budget and is better than the best."""
        if math.isfinite(self._score(found)) and (self.best is None or self._key(found) < self._key(self.best)):
            self.best = found

    def _lacks(self, simulated: _Simulated) -> float:
        """The factor by which its step must be shorter to keep deadline and budget and be as good as the best."""
        lacks = self.ask.over(*simulated.rates)
        if self.best is not None and (score := self._score(self.best)):
            lacks = max(lacks, self._goal_of(simulated.rates) / score)
        return lacks

    def _key(self, simulated: _Simulated) -> tuple[float, Score]:
        return self._score(simulated), simulated.rates

    def _remember(self, found: _Simulated) -> None:
        known = self.simulated.get(found.candidate.layout)
        if known is None or not known.is_final:
            self.simulated[found.candidate.layout] = found

    def _settle(self, baseline: _Simulated | None) -> Ending | None:
        """Simulate the best and its contenders as `geotrain simulate` will, and keep the best of those.

        A few rules rank layouts well, but not to the last percent: the second by them may be the first in full, and one
        that misses a limit may keep it. The gap gets smaller with every one. Returns what ended this early.
        """
        if self.best is not None:
            rough = self.best
            straight = self._straightened(rough)
            self.best = self._in_full(straight)
            if straight is not rough and self._score(self.best) > self._score(rough):
                self.best = min(self.best, self._in_full(rough), key=self._key)
            if math.isinf(self._score(self.best)):
                self.best = None
        ending = self._play_contenders()
        if baseline is not None and self._may_be_best(baseline):
            self._take(baseline)
        return ending

    def _play_contenders(self) -> Ending | None:
        """In full, the likeliest first, until none is left or they have taken as long as they may."""
        while contenders := self._contenders():
            if self._is_spent() and not self._is_usual:
                return "budget"
            if len(contenders) > _FEW_CONTENDERS:
                contenders = [one for one in contenders if self.spans < self._most_spans(one)]
            if not contenders:
                break
            self._take(self._in_full(min(contenders, key=lambda one: (self._lacks(one), one.rates))))
        return None

    @property
    def _is_usual(self) -> bool:
        """Whether the question leaves it to the search how long it takes."""
        return self.ask.evaluations is None and math.isinf(self.ask.seconds)

    def _most_spans(self, contender: _Simulated) -> float:
        """Until when it is played in full: longer, the longer the search may take, and if a limit decides."""
        decides = 1 < self.ask.over(*contender.rates) <= _GAIN
        return SPANS * max(1.0, self.ask.most_evaluations / EVALUATIONS) * (_PATIENCE if decides else 1)

    def _look_without_limits(self) -> Ending | None:
        """Take what searches without deadline and budget find, should it keep them.

        What is said of the fastest and the cheapest plan where none is found comes from these, so it cannot contradict.
        """
        ask, ending = self.ask, None
        if not ask.has_limits:
            return None
        for goal in GOALS:
            free = replace(ask, goal=goal, deadline_s=math.inf, max_cost=math.inf)
            other = _Search(Space(self.space.cluster, self.space.job, free), self.watch, self.plays)
            answer = other.run()
            self.ends[goal] = answer.best
            self.evaluations += other.evaluations
            self.considered |= other.considered
            for one in other.simulated.values():
                self._remember(one)
                if one.is_final:
                    self._take(one)
            if answer.ending == "interrupted":
                ending = answer.ending
        return ending or self._play_contenders()

    def _in_full(self, simulated: _Simulated) -> _Simulated:
        """The same layout with the schedule that `geotrain simulate` will find."""
        if simulated.is_final:
            return simulated
        found = self._simulate(simulated.candidate, thoroughly=True) or replace(simulated, is_final=True)
        self._remember(found)
        return found

    def _contenders(self) -> list[_Simulated]:
        """Layouts played by a few rules only, whose bound leaves room to beat the best."""
        enough = math.inf if self.best is None else self._score(self.best) * (1 - self.ask.tolerance)
        return [one for one in self.simulated.values() if not one.is_final and self._floor(one) < enough]

    def _floor(self, simulated: _Simulated) -> float:
        """The score that no schedule of the layout can beat."""
        candidate = simulated.candidate
        return self._allowed(candidate.rates(candidate.bound.total_s))

    def _straightened(self, best: _Simulated) -> _Simulated:
        """Of orders of the same data centers that are as good as equal, the shortest: it sends least far."""
        layout = best.candidate.layout
        slots = self.space.slots(layout.tensor_parallel, layout.microbatch)
        shorter = [
            other
            for other in self.space.layouts(group_of(layout))
            if other.kind == layout.kind
            and other.pipelines_per_cell == layout.pipelines_per_cell
            and _length(slots, other) < _length(slots, layout) * (1 - 1e-9)
        ]
        for other in sorted(shorter, key=lambda other: _length(slots, other))[:_STRAIGHTENED]:
            found = self.simulated.get(other) or self._simulate(self._candidate(other))
            if found is not None:
                self._remember(found)
            if found is not None and self._score(found) <= self._score(best) * (1 + self.ask.tolerance):
                return found
        return best

    def _may_be_best(self, baseline: _Simulated) -> bool:
        """What the published algorithm found is a plan like any other, unless something about it is ruled out."""
        allowed = self.ask.schedule in ("auto", "atlas") and self.space.allows(baseline.candidate.layout)
        return allowed and math.isfinite(self._score(baseline))

    # The published algorithm.

    def _published(self) -> _Simulated | None:
        """Its best layout that fits, played by its own schedule; by ours it is the first answer to beat."""
        for estimate in self._published_estimates():
            plan = self.space.plan(estimate.layout, "atlas")
            found = self._simulate(_Candidate(estimate.layout, Problem(plan)))
            if found is not None:
                if self.space.allows(estimate.layout):
                    self._keep(self._simulate(self._candidate(estimate.layout)))
                return found
        return None

    def _published_estimates(self) -> list[Estimate]:
        """It takes tensor parallelism and stages as given; it gets all that we would try, and its own best wins."""
        found = []
        for tensor_parallel in self.space.tensor_parallels():
            slots = self.space.slots(tensor_parallel, self.space.job.microbatch)
            for num_stages in self.space.stage_counts(slots):
                found += published(slots, num_stages)[:_ESTIMATES]
        return sorted(found, key=lambda estimate: -estimate.microbatches_per_s)

    # The answer.

    def _elapsed(self) -> float:
        return time.monotonic() - self.started

    def _is_spent(self) -> bool:
        return self.evaluations >= self.ask.most_evaluations or self._elapsed() > self.ask.seconds

    def _gap(self) -> float:
        """By how much a layout that was not simulated in full can at most be better than the best."""
        if self.best is None:
            return math.inf
        score = self._score(self.best)
        rough = (self._floor(one) for one in self.simulated.values() if not one.is_final)
        floor = min(self.least_left, self.queue[0][0] if self.queue else math.inf, *rough)
        return max(0.0, 1 - floor / score) if score else 0.0

    def _report(self) -> None:
        if self.watch is not None:
            best = None if self.best is None else self.best.scored()
            self.watch(Progress(evaluations=self.evaluations, elapsed_s=self._elapsed(), best=best, gap=self._gap()))

    def _nothing_fits(self, ending: Ending) -> str:
        ask, cluster, job = self.ask, self.space.cluster, self.space.job
        wanted = len(job.profile.stage) if isinstance(job.profile.stage, list) else ask.stages
        slots = sum(self.space.slots(1, job.microbatch).numbers)
        if wanted is not None and wanted > slots:
            return f"a pipeline of {wanted} stages needs as many GPUs, there are {slots}"
        if self.refused is not None:
            return str(self.refused)
        if self.ends:
            return self._nothing_keeps_limits()
        if ending == "budget":
            return (
                f"the search ended before it found a plan, after {plural(self.evaluations, 'simulation')} and "
                f"{format_seconds(self._elapsed())}: give it more with --evaluations or --budget"
            )
        if ask.leave_room_for is None:
            return closest(cluster, job)
        widest = max(self.space.tensor_parallels(), default=1)
        return no_room(cluster, job, ask.leave_room_for, widest, ask.prefill_room_bytes(widest))

    def _nothing_keeps_limits(self) -> str:
        ask, (fastest, cheapest) = self.ask, (self.ends[goal] for goal in GOALS)
        has_deadline, has_budget = math.isfinite(ask.deadline_s), math.isfinite(ask.max_cost)

        def described(one: Scored) -> str:
            takes = f"takes {format_seconds(one.s_per_token * ask.tokens)}"
            costs = f"costs {one.cost_per_token * ask.tokens:,.2f}"
            return " and ".join([takes] * has_deadline + [costs] * has_budget)

        limits = [f" in {format_seconds(ask.deadline_s)} (--deadline)"] * has_deadline
        limits += [f" for {ask.max_cost:,.2f} (--max-cost)"] * has_budget
        ends = [f"the fastest {described(fastest)}"] * has_deadline + [
            f"the cheapest {described(cheapest)}"
        ] * has_budget
        return f"no plan was found for {format_count(ask.tokens)} tokens{''.join(limits)}: {', '.join(ends)}"

    def _answer(self, best: _Simulated, baseline: _Simulated | None, ending: Ending) -> Answer:
        others: dict[object, _Simulated] = {}
        for one in sorted(self.simulated.values(), key=self._key):
            others.setdefault(one.candidate.layout.kind, one)
        others.pop(best.candidate.layout.kind, None)
        return Answer(
            ask=self.ask,
            best=best.scored(),
            published=None if baseline is None else baseline.scored(),
            others=tuple(other.scored() for other in others.values()),
            frontier=tuple(one.scored() for one in _frontier(self.simulated.values())),
            evaluations=self.evaluations,
            considered=len(self.considered | self.simulated.keys()),
            search_s=self._elapsed(),
            gap=self._gap(),
            ending=ending,
        )


def _frontier(found: Iterable[_Simulated]) -> list[_Simulated]:
    """What nothing else beats in both, fastest first."""
    front: list[_Simulated] = []
    for one in sorted(found, key=lambda one: one.rates):
        if not front or one.rates[1] < front[-1].rates[1]:
            front.append(one)
    return front


def _tokens(slots: Slots, num_pipelines: int) -> int:
    """Of one step."""
    return num_pipelines * slots.num_microbatches(num_pipelines) * slots.job.microbatch * slots.job.sequence


def _length(slots: Slots, layout: Layout) -> float:
    """Seconds of all hops, there and back."""
    return sum(slots.hop_cost(here, there) for (here, _), (there, _) in pairwise(layout.placement))
