"""Trying out schedules: the best so far, what may still be spent, and what fits."""

from collections.abc import Iterable, Sequence
from itertools import product

from geotrain import interrupts
from geotrain.errors import InputError
from geotrain.schedule import Schedule
from geotrain.simulation.play import Board, Played
from geotrain.simulation.problem import Problem

_SETUP_SPANS = 1_500
"""What setting up one simulation costs, in spans."""
_EXHAUSTIVE_SPANS = 1_500_000
"""Up to here every schedule is tried with every pooling."""
_SHORTLIST = 3
_SHORT_SPANS = 12_000
"""About as many spans as a step has on which schedules are ranked."""
_GOOD = 12

Score = tuple[int, int, int]


class Search:
    """Plays schedules on one problem and keeps the best that fits.

    What it may spend is counted in simulated spans, not in seconds, so that the same problem gets the same answer.
    """

    def __init__(self, problem: Problem, spans: float, ideal: int = 0) -> None:
        """`ideal`: ticks of a step that is good enough."""
        self.problem = problem
        self.spans_left = spans
        self.ideal = ideal
        self.best: Played | None = None
        self.good: list[tuple[Score, Schedule, frozenset[int]]] = []
        """The best few that differ, best first."""
        self._limits = {split: problem.limits(split=split) for split in (False, True)}
        self._boards: dict[frozenset[int], Board] = {}
        self._short: Search | None = None

    @property
    def done(self) -> bool:
        """Whether there is nothing left to spend or to gain."""
        return self.spans_left <= 0 or (self.best is not None and self.best.step_ticks <= self.ideal)

    def board(self, pooled: frozenset[int]) -> Board:
        """The problem, laid out with those boundaries pooled."""
        if pooled not in self._boards:
            self._boards[pooled] = Board(self.problem, pooled)
        return self._boards[pooled]

    def try_out(self, schedule: Schedule, pooled: frozenset[int]) -> Score | None:
        """Play it, remember it if it is the best; None if it stalls or does not fit."""
        interrupts.check()
        try:
            played = self.board(pooled).play(schedule)
        except InputError:
            return None
        self.spans_left -= played.actions.shape[1] + played.transfers.shape[1] + _SETUP_SPANS
        if not self._fits(played):
            return None
        result = score(played)
        if not self.good or result < self.good[0][0]:
            self.best = played
        if all(result != other for other, _, _ in self.good):
            self.good = sorted([*self.good, (result, schedule, pooled)], key=lambda entry: entry[0])[:_GOOD]
        return result

    def _fits(self, played: Played) -> bool:
        """Memory and the plan's cap are hard limits."""
        room = played.in_flight <= self.problem.shape.room
        return bool((room & (played.peak_units <= self._limits[played.split])).all())

    def try_all(
        self, schedules: Iterable[Schedule], poolings: Sequence[frozenset[int]], *, whatever_it_costs: bool = False
    ) -> None:
        """Try every schedule with every pooling; where that is too much, rank them first on a step cut short.

        Pipelines that pool nothing are simulated once for all, so a pooling costs as much as there are pipelines: the
        best few are tried without, and only the best of those with the others.
        """
        schedules = list(schedules)
        effort = len(schedules) * sum(self.board(pooled).num_spans for pooled in poolings)
        if effort <= _EXHAUSTIVE_SPANS or len(schedules) <= 1:
            for schedule, pooled in product(schedules, poolings):
                self.try_out(schedule, pooled)
            return
        cheapest = min(poolings, key=lambda pooled: (self.board(pooled).num_spans, poolings.index(pooled)))
        shortlist = self._ranked(self._cut_short(cheapest), schedules, cheapest, whatever_it_costs)[:_SHORTLIST]
        for best in self._ranked(self, shortlist, cheapest, whatever_it_costs)[:1]:
            for pooled in poolings:
                if pooled != cheapest:
                    self.try_out(best, pooled)

    def _ranked(
        self, search: "Search", schedules: Sequence[Schedule], pooled: frozenset[int], whatever_it_costs: bool
    ) -> list[Schedule]:
        """Those that fit, best first, as that search plays them; what it spends is spent here."""
        ranked = []
        for place, schedule in enumerate(schedules):
            if self.spans_left <= 0 and not whatever_it_costs:
                break
            before = search.spans_left
            result = search.try_out(schedule, pooled)
            if search is not self:
                self.spans_left -= before - search.spans_left
                search.spans_left = before
            if result is not None:
                ranked.append((result, place))
        return [schedules[place] for _, place in sorted(ranked)]

    def _cut_short(self, pooled: frozenset[int]) -> "Search":
        """A search on the same plan with fewer microbatches, few enough to be quick."""
        if self._short is None:
            plan, spans = self.problem.plan, self.board(pooled).num_spans
            fewer = max(4, plan.num_microbatches * _SHORT_SPANS // spans)
            if fewer >= plan.num_microbatches:
                self._short = self
            else:
                job = plan.job.model_copy(update={"microbatches": fewer, "global_batch": None})
                self._short = Search(Problem(plan.model_copy(update={"job": job})), _SHORT_SPANS)
        return self._short


def score(played: Played) -> Score:
    """Smaller is better: the step, then the slot that is tied up longest, then when all slots are done."""
    return played.step_ticks, played.longest_span_ticks, sum(played.work_end.tolist())
