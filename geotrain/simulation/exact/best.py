"""The shortest step over every choice of boundaries to pool, and what no schedule can beat."""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from geotrain.errors import InputError
from geotrain.schedule import Orders
from geotrain.simulation.exact.answer import Answer, answer
from geotrain.simulation.exact.case import Case
from geotrain.simulation.exact.model import Model
from geotrain.simulation.problem import Problem
from geotrain.simulation.wiring import Wiring
from geotrain.units import plural

_MOST_ACTIONS = 600
_MOST_BOUNDARIES = 3
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
    best = Answer(step=math.inf, bound=math.inf)
    bound = math.inf
    left_s = seconds
    for number, pooled in enumerate(poolings):
        model = Model(Case(problem, Wiring(problem, pooled), most=known * _SLACK))
        found = answer(model, left_s / (len(poolings) - number))
        left_s -= found.used_s
        known, bound = min(known, found.step), min(bound, found.bound)
        if found.step < best.step:
            best = found
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
