"""The `auto` schedule: a search over rules, then over the order of single actions, for the plan at hand.

Starts from every named schedule but interleaved, so it is never worse than any of them, and tries one idea after
another; each keeps what the ones before it found. What comes out are plain lists of actions: nothing is left to decide
while they are played.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from geotrain import interrupts
from geotrain.action import KIND_MASK, PIPELINE_FREE, STAGE_SHIFT, Kind
from geotrain.errors import DoesNotFitError, InputError
from geotrain.plan import ScheduleName
from geotrain.schedule import SCHEDULES, Orders, Patience, RecomputeWhen, Rules, Schedule, candidates
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.jitter import Jitter, spread
from geotrain.simulation.play import STEADY, Board, Played, Variation
from geotrain.simulation.problem import BACKWARD, FORWARD, Problem
from geotrain.simulation.result import Gain
from geotrain.simulation.search import Search, score
from geotrain.timeline import Ints

NAMED: tuple[ScheduleName, ...] = (*(n for n in SCHEDULES if n not in ("atlas", "gpipe", "interleaved")), "gpipe")
"""What the search starts from, GPipe last: of equals the first is kept. Atlas is Varuna with a choice of pooling, which
is made for all; interleaved is for plans with several chunks per stage."""
SPANS = 7_000_000
"""Spans that a search may simulate: somewhat over a second."""

_PATIENCE = (
    Patience(w_before_f=0, w_before_b=0),
    Patience(w_before_f=1, w_before_b=1),
    Patience(w_before_f=0, w_before_b=1 / 32, f_before_b=1 / 2),
    Patience(w_before_f=0, w_before_b=0, f_before_b=0),
)

_RULES_OF_THUMB = ((True, _PATIENCE[0]), (True, _PATIENCE[1]), (True, _PATIENCE[3]), (False, Patience()))

_WIRE_SHARES = (0.8, 0.6, 0.5, 0.7)
"""Lists are made for a WAN on which transfers take this share of a slot's work, if they take less. The shares do not
depend on the WAN: what is tried on a slow one is tried on every faster one too."""
_WIRE_SPANS = SPANS // 3
"""Spans that may be simulated for it."""

_RECOMPUTE: tuple[RecomputeWhen, ...] = ("once-sent", "early", "after-forward")
_LISTED = 2
"""Rules that are played as lists after each idea, of the best."""
_STARTS = 3
"""Schedules from which single actions are changed."""
_TRIES = 6
"""Changes in a row that may be of no use, per action."""
_REFIT = 0.3
"""Share of changes to a backward that split it or make it whole; the others move it."""
_REACH = 6
"""Most places that an action is moved at a time."""
_AS_GOOD = 5e-4
"""So close to the lower bound there is nothing left to gain."""
_LONG = 3_000
"""Spans of a step in which single actions do not matter any more."""

Poolings = Sequence[frozenset[int]]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best schedule of a search and how it came about."""

    played: Played
    gains: tuple[Gain, ...]
    interrupted: bool = False
    """Ctrl-C ended the search early."""
    spans: int = 0
    """Simulated in the search for it."""


def auto(problem: Problem, poolings: Poolings, *, robust: Jitter | None = None, spans: float = SPANS) -> Found:
    """The best schedule found, with any of those choices of boundaries to pool; DoesNotFitError if there is none.

    With `robust`, the one of the best few whose 95th percentile under that variation is lowest. Ctrl-C ends the search
    with what it has.
    """
    # The shortest step need not be the most robust one.
    search = Search(problem, spans, _ideal(problem) if robust is None else 0)
    gains: list[Gain] = []
    interrupted = False
    for idea, run in _ideas(search, poolings):
        try:
            run()
            if gains and problem.shape.recompute:
                _make_lists(search)
        except KeyboardInterrupt:
            if search.best is None:
                raise
            interrupts.remember()
            interrupted, idea = True, f"{idea} (interrupted)"
        step_ticks = _best(search).step_ticks
        gains.append(Gain(idea=idea, step_s=float(problem.seconds(np.array(step_ticks)))))
        if (search.done and len(gains) > 1) or interrupted:
            break
    good = [
        _listed(search, schedule, pooled) for _, schedule, pooled in search.good[: _STARTS if robust is None else None]
    ]
    if robust is None or interrupted:
        chosen = min(good, key=score)
    else:
        chosen = min(good, key=lambda played: spread(played, robust).p95_s)
        gains.append(Gain(idea="robustness", step_s=float(problem.seconds(np.array(chosen.step_ticks)))))
    spent = int(spans - search.spans_left)
    return Found(played=chosen, gains=tuple(gains), interrupted=interrupted, spans=spent)


def quick(problem: Problem, poolings: Poolings) -> Found:
    """A few rules that come close to what auto finds, at a fraction of the effort; DoesNotFitError if none fits."""
    search = Search(problem, math.inf, _ideal(problem))
    _try_rules_of_thumb(search, poolings)
    _try_slower_wan(search, poolings)
    return Found(played=_best(search), gains=())


def _try_rules_of_thumb(search: Search, poolings: Poolings) -> None:
    search.try_all(_rules_of_thumb(search.problem), poolings[:2], whatever_it_costs=True)


def _rules_of_thumb(problem: Problem) -> list[Rules]:
    families = _run_ahead(problem)
    hold = (math.inf,) * problem.shape.num_stages
    return [
        Rules(ahead=ahead, split=split, hold=hold, patience=patience, recompute="early")
        for ahead, (split, patience) in product((families[0], families[-1]), _RULES_OF_THUMB)
    ]


def _try_slower_wan(search: Search, poolings: Poolings) -> None:
    """Play the rules of thumb on a slower WAN and what comes of it, as fixed lists, on the WAN there is.

    A rule takes what has arrived, so that a faster WAN may well lead it astray; a list only gets done sooner. Where
    transfers keep pace with the slots, the rules find an order in which no slot waits.
    """
    rules, enough = _rules_of_thumb(search.problem), search.spans_left - _WIRE_SPANS
    for share, pooled, rule in product(_WIRE_SHARES, poolings[:2], rules):
        if search.done or search.spans_left < enough:
            return
        board = search.board(pooled)
        slower = _slower_wan(board, share)
        if slower is None:
            continue
        search.spans_left -= board.num_spans
        try:
            lists = board.play(rule, slower).orders()
        except InputError:
            continue
        search.try_out(lists, pooled)


def _slower_wan(board: Board, share: float) -> Variation | None:
    """Transfers over the WAN that take that share of the longest slot's work for a microbatch; None if all do."""
    problem, plan, wiring, shape = board.problem, board.problem.plan, board.wiring, board.problem.shape
    factors = np.ones((2, wiring.num_pipelines, shape.num_model_stages, shape.num_microbatches))
    for hop in problem.hops:
        in_turn, at_once = (plan.pipelines_per_cell, plan.cells) if wiring.is_pooled(hop) else (1, plan.num_pipelines)
        rate = min(wiring.path(hop).rate, hop.capacity / at_once)
        if hop.own.crosses_wan and math.isfinite(rate):
            factor = share * _slot_s(problem) / in_turn * rate / problem.transfer_bytes
            factors[hop.direction, :, hop.stage] = max(1.0, factor)
    return None if (factors == 1).all() else replace(STEADY, transfers=factors.reshape(2, -1))


def _ideal(problem: Problem) -> int:
    """A step so close to the lower bound that there is nothing left to gain, in ticks."""
    return int(problem.ticks(lower_bound(problem).total_s * (1 + _AS_GOOD)))


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
    return board.play(schedule if isinstance(schedule, Orders) else board.play(schedule).orders())


def _best(search: Search) -> Played:
    if search.best is None:
        raise DoesNotFitError("no schedule fits in memory")
    return search.best


def _ideas(search: Search, poolings: Poolings) -> Iterator[tuple[str, Callable[[], None]]]:
    """The ideas, in the order they are tried.

    Extra warm-up is worth 1% in one of 1,138 small plans (benchmarks/oracle.py), and nothing on docs/grid.md.
    """
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
    yield "rules of thumb", lambda: _try_rules_of_thumb(search, poolings)
    if problem.wan_boundaries:
        yield "orders made for a slower WAN", lambda: _try_slower_wan(search, poolings)
    if problem.shape.recompute:
        yield "recompute while waiting for the gradient", lambda: _make_lists(search)
    yield "extra warm-up ahead of slow hops", lambda: search.try_all(warm_up, poolings)
    yield "weight gradients fill the gaps", lambda: search.try_all(filling, poolings)
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
    wire_s = max((h.own.occupancy_s(size) for h in problem.hops), default=0.0)
    period = max(_slot_s(problem), wire_s)
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


def _slot_s(problem: Problem) -> float:
    """The longest slot's work for one microbatch."""
    again = problem.shape.recompute
    return max(c.forward_s + c.backward_s + (c.recompute_s if again else 0.0) for c in problem.costs)


def _best_rules(search: Search) -> tuple[Rules, frozenset[int]] | None:
    """The best rules so far and the boundaries they pool; lists may be better, but are made for one way of pooling."""
    for _, schedule, pooled in search.good:
        if isinstance(schedule, Rules):
            return schedule, pooled
    return None


def _tune_ahead(search: Search) -> None:
    """Let runs of neighbouring stages run a little further or less far ahead, while that helps."""
    room = search.problem.shape.room
    width = len(room)
    while width >= 1:
        start = _best_rules(search)
        for first, change in product(range(0, len(room), width), (1, -1, 2, -2)):
            best = _best_rules(search)
            if search.done or best is None:
                return
            rules, pooled = best
            ahead = list(rules.ahead)
            for slot in range(first, min(first + width, len(room))):
                ahead[slot] = max(1, min(room[slot], ahead[slot] + change))
            search.try_out(replace(rules, ahead=tuple(ahead)), pooled)
        if _best_rules(search) == start:
            width //= 2


def _reorder(search: Search) -> None:
    """Change single actions at random, while that helps; from each of the best few found so far."""
    luck = random.Random(0)
    if search.best is None or search.board(search.best.wiring.pooled).num_spans > _LONG:
        return
    for start in [_listed(search, schedule, pooled) for _, schedule, pooled in search.good[:_STARTS]]:
        _wander(search, start.orders(), start.wiring.pooled, luck)


def _wander(search: Search, orders: Orders, pooled: frozenset[int], luck: random.Random) -> None:
    shape = search.problem.shape
    best = search.try_out(orders, pooled)
    most = tries = _TRIES * sum(map(len, orders.codes))
    while best is not None and tries > 0 and not search.done:
        tries -= 1
        slot = luck.randrange(len(orders.codes))
        changed = _changed(orders.codes[slot], luck)
        if changed is orders.codes[slot] or (shape.recompute and not _lacks_nothing(changed)):
            continue
        # The same for all pipelines, or for one of them.
        whose = range(slot % shape.num_stages, len(orders.codes), shape.num_stages) if luck.random() < 0.5 else [slot]
        neighbour = Orders(codes=tuple(changed if s in whose else codes for s, codes in enumerate(orders.codes)))
        result = search.try_out(neighbour, pooled)
        if result is not None and result <= best:
            tries = tries if result[0] == best[0] else most
            orders, best = neighbour, result


def _changed(codes: Ints, luck: random.Random) -> Ints:
    """The list with a backward split or made whole, or with one action moved a few places."""
    place = luck.randrange(len(codes))
    code = int(codes[place])
    kind = Kind(code & KIND_MASK)
    whole, halves = code - kind + Kind.B, [code - kind + Kind.I, code - kind + Kind.W]
    if kind in (Kind.B, Kind.I) and luck.random() < _REFIT:
        new = halves if kind == Kind.B else [whole]
        rest = codes[place + 1 :]
        return np.concatenate([codes[:place], new, rest[rest != halves[1]]])
    step = luck.choice((-1, 1))
    for _ in range(luck.randint(1, _REACH)):
        moved = _exchanged(codes, min(place, place + step))
        if moved is None:
            break
        codes, place = moved, place + step
    return codes


def _lacks_nothing(codes: Ints) -> bool:
    """Whether every backward without a recompute directly follows its forward."""
    kinds, microbatches = codes & KIND_MASK, codes & ~KIND_MASK
    backward = (kinds == Kind.B) | (kinds == Kind.I)
    (places,) = np.nonzero(backward & ~np.isin(microbatches, microbatches[kinds == Kind.R]))
    return bool((codes[places - 1] == microbatches[places]).all())


def _exchanged(codes: Ints, place: int) -> Ints | None:
    """The list with two neighbours exchanged, if what comes of it can be played and is something new."""
    if not 0 <= place < len(codes) - 1:
        return None
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
