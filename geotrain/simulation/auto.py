"""The `auto` schedule: a search over rules, then over the order of single actions, for the plan at hand.

Starts from every named schedule, so it is never worse than any of them, and tries one idea after another; each keeps
what the ones before it found. What comes out are plain lists of actions: nothing is left to decide while they are
played.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from geotrain.action import KIND_MASK, PIPELINE_FREE, STAGE_SHIFT, Kind
from geotrain.errors import DoesNotFitError, InputError
from geotrain.plan import ScheduleName
from geotrain.schedule import Orders, Patience, RecomputeWhen, Rules, Schedule, candidates
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.jitter import Jitter, spread
from geotrain.simulation.play import Played
from geotrain.simulation.problem import BACKWARD, FORWARD, Problem
from geotrain.simulation.result import Gain
from geotrain.simulation.search import Search, score
from geotrain.timeline import Ints

NAMED: tuple[ScheduleName, ...] = ("1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "gpipe")
"""What the search starts from. Atlas is Varuna with a choice of pooling, which is made for all."""
SPANS = 7_000_000
"""Spans that a search may simulate: somewhat over a second."""

_PATIENCE = (
    Patience(w_before_f=0, w_before_b=0),
    Patience(w_before_f=1, w_before_b=1),
    Patience(w_before_f=0, w_before_b=1 / 32, f_before_b=1 / 2),
    Patience(w_before_f=0, w_before_b=0, f_before_b=0),
)

_RECOMPUTE: tuple[RecomputeWhen, ...] = ("once-sent", "early", "after-forward")
_LISTED = 2
"""Rules that are played as lists after each idea, of the best."""
_STARTS = 5
"""Schedules from which single actions are reordered."""

Poolings = Sequence[frozenset[int]]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best schedule of a search and how it came about."""

    played: Played
    gains: tuple[Gain, ...]


def auto(problem: Problem, poolings: Poolings, *, robust: Jitter | None = None, spans: float = SPANS) -> Found:
    """The best schedule found, with any of those choices of boundaries to pool; DoesNotFitError if there is none.

    With `robust`, the one of the best few whose 95th percentile under that variation is lowest.
    """
    search = Search(problem, spans)
    ideal = int(problem.ticks(lower_bound(problem).total_s))
    gains: list[Gain] = []
    for idea, run in _ideas(search, poolings):
        run()
        if gains and problem.shape.recompute:
            _make_lists(search)
        step_ticks = _best(search).step_ticks
        gains.append(Gain(idea=idea, step_s=float(problem.seconds(np.array(step_ticks)))))
        if search.spans_left <= 0 or (step_ticks <= ideal and robust is None):
            break
    good = [
        _listed(search, schedule, pooled) for _, schedule, pooled in search.good[: _STARTS if robust is None else None]
    ]
    if robust is None:
        chosen = min(good, key=score)
    else:
        chosen = min(good, key=lambda played: spread(played, robust).p95_s)
        gains.append(Gain(idea="robustness", step_s=float(problem.seconds(np.array(chosen.step_ticks)))))
    return Found(played=chosen, gains=tuple(gains))


def _make_lists(search: Search) -> None:
    """As fixed lists the best few recompute earlier, which may well change which of them is best."""
    for _, schedule, pooled in search.good[:_LISTED]:
        board = search.board(pooled)
        if isinstance(schedule, Rules) and search.spans_left > _LISTED * board.num_spans:
            search.spans_left -= board.num_spans
            search.try_out(board.play(schedule).orders(), pooled)


def _listed(search: Search, schedule: Schedule, pooled: frozenset[int]) -> Played:
    """Played as fixed lists: at least as fast, as a list may recompute before the gradient has set out."""
    board = search.board(pooled)
    return board.play(board.play(schedule).orders())


def _best(search: Search) -> Played:
    if search.best is None:
        raise DoesNotFitError("no schedule fits in memory")
    return search.best


def _ideas(search: Search, poolings: Poolings) -> Iterator[tuple[str, Callable[[], None]]]:
    """The ideas, in the order they are tried."""
    problem = search.problem
    families = _run_ahead(problem)
    again = _RECOMPUTE if problem.shape.recompute else _RECOMPUTE[:1]
    hold = (math.inf,) * problem.shape.num_stages
    warm_up = [
        Rules(ahead=ahead, patience=Patience(f_before_b=share), recompute=when)
        for ahead, share, when in product(families, (1.0, 0.5, 0.0), again)
    ]
    filling = [
        Rules(ahead=ahead, split=True, hold=hold, patience=patience, recompute=when)
        for ahead, patience, when in product(families, _PATIENCE, again)
    ]
    yield "best named schedule", lambda: _try_named(search, poolings)
    if problem.shape.recompute:
        yield "recompute while waiting for the gradient", lambda: _make_lists(search)
    yield "extra warm-up ahead of slow hops", lambda: search.try_all(warm_up, poolings)
    yield "weight gradients fill the gaps", lambda: search.try_all(filling, poolings)
    if len(poolings) > 1:
        yield "pooling boundary by boundary", lambda: _flip_pooling(search)
    yield "warm-up stage by stage", lambda: _tune_ahead(search)
    yield "order of single actions", lambda: _reorder(search)


def _try_named(search: Search, poolings: Poolings) -> None:
    """Every named schedule, whatever it costs: the result must not be worse than any of them."""
    for name in NAMED:
        try:
            made = candidates(name, search.problem.shape)
        except InputError:
            continue
        search.try_all(made, poolings, whatever_it_costs=True)


def _run_ahead(problem: Problem) -> list[tuple[int, ...]]:
    """How far forwards may run ahead: multiples of what covers the way to the last stage and back, up to memory."""
    costs, size = problem.costs, problem.transfer_bytes
    hop_s = {(h.direction, h.stage): h.pooled.occupancy_s(size) + h.pooled.latency_s for h in problem.hops}
    slot_s = max(c.forward_s + c.backward_s + (c.recompute_s if problem.shape.recompute else 0.0) for c in costs)
    wire_s = max((h.own.occupancy_s(size) for h in problem.hops), default=0.0)
    period = max(slot_s, wire_s)
    way = 0.0
    needs = [0.0] * len(costs)
    for stage in reversed(range(len(costs))):
        if stage < len(costs) - 1:
            way += hop_s[FORWARD, stage] + hop_s[BACKWARD, stage + 1]
        way += costs[stage].forward_s + costs[stage].input_grad_s
        needs[stage] = way / period if period else 1.0
    room = problem.shape.room
    families = [room]
    for factor, extra in product((1.0, 1.2, 1.5, 2.0), (0, 1, 2)):
        families.append(
            tuple(max(1, min(r, math.ceil(factor * n - 1e-9) + extra)) for n, r in zip(needs, room, strict=True))
        )
    return list(dict.fromkeys(families))


def _best_rules(search: Search) -> tuple[Rules, frozenset[int]] | None:
    """The best rules so far and the boundaries they pool; lists may be better, but are made for one way of pooling."""
    for _, schedule, pooled in search.good:
        if isinstance(schedule, Rules):
            return schedule, pooled
    return None


def _flip_pooling(search: Search) -> None:
    """Pool or do not pool each boundary in turn, while that helps."""
    before = None
    while search.spans_left > 0 and (best := _best_rules(search)) not in (None, before):
        before = best
        assert best is not None
        for boundary in search.problem.wan_boundaries:
            search.try_out(best[0], best[1] ^ {boundary})


def _tune_ahead(search: Search) -> None:
    """Let runs of neighbouring stages run a little further or less far ahead, while that helps."""
    room = search.problem.shape.room
    width = len(room)
    while width >= 1:
        start = _best_rules(search)
        for first, change in product(range(0, len(room), width), (1, -1, 2, -2)):
            best = _best_rules(search)
            if search.spans_left <= 0 or best is None:
                return
            rules, pooled = best
            ahead = list(rules.ahead)
            for slot in range(first, min(first + width, len(room))):
                ahead[slot] = max(1, min(room[slot], ahead[slot] + change))
            search.try_out(replace(rules, ahead=tuple(ahead)), pooled)
        if _best_rules(search) == start:
            width //= 2


def _reorder(search: Search) -> None:
    """Exchange neighbouring actions of a slot, while that helps; from each of the best few found so far."""
    starts = [search.board(pooled).play(schedule) for _, schedule, pooled in search.good[:_STARTS]]
    for start in starts:
        _improve(search, start.orders(), start.wiring.pooled)


def _improve(search: Search, orders: Orders, pooled: frozenset[int]) -> None:
    shape = search.problem.shape
    best = search.try_out(orders, pooled)
    improved = best is not None
    while improved:
        improved = False
        for slot, codes in enumerate(orders.codes):
            if shape.recompute and slot % shape.num_stages == shape.num_stages - 1:
                continue  # the last stage goes straight from F to its backward
            for place in range(len(codes) - 1):
                changed = _exchanged(orders.codes[slot], place)
                if changed is None:
                    continue
                if search.spans_left <= 0:
                    return
                neighbour = Orders(codes=(*orders.codes[:slot], changed, *orders.codes[slot + 1 :]))
                result = search.try_out(neighbour, pooled)
                if result is not None and (best is None or result < best):
                    orders, best, improved = neighbour, result, True


def _exchanged(codes: Ints, place: int) -> Ints | None:
    """The list with two neighbours exchanged, if what comes of it can be played and is something new."""
    first, second = int(codes[place]), int(codes[place + 1])
    kinds = first & KIND_MASK, second & KIND_MASK
    same_microbatch = (first ^ second) & PIPELINE_FREE & ~KIND_MASK == 0
    same_kind = kinds[0] == kinds[1] and first >> STAGE_SHIFT == second >> STAGE_SHIFT
    # One microbatch at a time is recomputed: its activations fill the workspace until its backward.
    two_recomputed = kinds[0] in (Kind.B, Kind.I) and kinds[1] == Kind.R
    if same_microbatch or same_kind or two_recomputed:
        return None
    changed = codes.copy()
    changed[place], changed[place + 1] = second, first
    return changed
