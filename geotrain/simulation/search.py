"""Trying out schedules: the best so far, what may still be spent, and what fits."""

from collections.abc import Iterable, Sequence

from geotrain.errors import InputError
from geotrain.schedule import Orders, Schedule
from geotrain.schedule.passes import most_in_flight
from geotrain.simulation.play import Board, Played
from geotrain.simulation.problem import Problem

_SETUP_SPANS = 1_500
"""What setting up one simulation costs, in spans."""
_EXHAUSTIVE_SPANS = 1_500_000
"""Up to here every schedule is tried with every pooling; beyond, only the best few are."""
_SHORTLIST = 3
_GOOD = 12

Score = tuple[int, int, int]


class Search:
    """Plays schedules on one problem and keeps the best that fits.

    What it may spend is counted in simulated spans, not in seconds, so that the same problem gets the same answer.
    """

    def __init__(self, problem: Problem, spans: float) -> None:
        self.problem = problem
        self.spans_left = spans
        self.best: Played | None = None
        self.good: list[tuple[Score, Schedule, frozenset[int]]] = []
        """The best few that differ, best first."""
        self._boards: dict[frozenset[int], Board] = {}

    def board(self, pooled: frozenset[int]) -> Board:
        """The problem, laid out with those boundaries pooled."""
        if pooled not in self._boards:
            self._boards[pooled] = Board(self.problem, pooled)
        return self._boards[pooled]

    def try_out(self, schedule: Schedule, pooled: frozenset[int]) -> Score | None:
        """Play it, remember it if it is the best; None if it stalls or does not fit."""
        try:
            played = self.board(pooled).play(schedule)
        except InputError:
            return None
        self.spans_left -= played.actions.shape[1] + played.transfers.shape[1] + _SETUP_SPANS
        if not fits(played):
            return None
        result = score(played)
        if self.best is None or result < score(self.best):
            self.best = played
        if all(result != other for other, _, _ in self.good):
            self.good = sorted([*self.good, (result, schedule, pooled)], key=lambda entry: entry[0])[:_GOOD]
        return result

    def try_all(
        self, schedules: Iterable[Schedule], poolings: Sequence[frozenset[int]], *, whatever_it_costs: bool = False
    ) -> None:
        """Try every schedule with every pooling; where that is too much, with the cheapest first and the best of those.

        Pipelines that pool nothing are simulated once for all, so a pooling costs as much as there are pipelines.
        """
        schedules = list(schedules)
        cheapest = min(poolings, key=lambda pooled: (self.board(pooled).num_spans, poolings.index(pooled)))
        effort = len(schedules) * sum(self.board(pooled).num_spans for pooled in poolings)
        if effort <= _EXHAUSTIVE_SPANS:
            for schedule in schedules:
                for pooled in poolings:
                    self.try_out(schedule, pooled)
            return
        ranked = []
        for place, schedule in enumerate(schedules):
            if self.spans_left <= 0 and not whatever_it_costs:
                break
            result = self.try_out(schedule, cheapest)
            if result is not None:
                ranked.append((result, place))
        for _, place in sorted(ranked)[:_SHORTLIST]:
            for pooled in poolings:
                if pooled != cheapest:
                    self.try_out(schedules[place], pooled)


def score(played: Played) -> Score:
    """Smaller is better: the step, then the slot that is tied up longest, then when all slots are done."""
    return played.step_ticks, played.longest_span_ticks, int(played.work_end.sum())


def fits(played: Played) -> bool:
    """Memory and the plan's cap are hard limits."""
    problem, slots = played.problem, played.problem.shape.num_stages
    held = problem.activation_units(played.peak_units)
    for slot in range(slots):
        memories = [cost.memory for cost in problem.costs[slot::slots]]
        spare = max(m.recomputed_bytes for m in memories) if played.split else 0.0
        limit = problem.available_bytes[slot] + spare
        if held[slot] * max(m.activation_bytes for m in memories) > limit * (1 + 1e-9):
            return False
    if not isinstance(played.schedule, Orders):
        return True
    rooms = problem.shape.room * (len(played.schedule.codes) // slots)
    return all(most_in_flight(codes) <= room for codes, room in zip(played.schedule.codes, rooms, strict=True))
