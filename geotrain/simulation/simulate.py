"""The Plan on a virtual clock: tries what the plan's schedule offers, keeps the best, and reports it in figures."""

import math

from geotrain.errors import DoesNotFitError
from geotrain.plan import Plan
from geotrain.schedule import candidates, pooling_choices
from geotrain.simulation.auto import Found, auto
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.jitter import Jitter
from geotrain.simulation.metrics import measure
from geotrain.simulation.play import Board, Played
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Result
from geotrain.simulation.search import Search
from geotrain.units import format_bytes, plural

_THOROUGH = 10_000
"""Microbatches x slots up to which a simulation is so quick that every choice is tried."""


def simulate(plan: Plan) -> Result:
    """Play one step of the plan; InputError where it cannot be played or does not fit."""
    return run(plan)[1]


def run(plan: Plan, *, robust: Jitter | None = None) -> tuple[Played, Result]:
    """Play one step of the plan, and its figures; with `robust`, auto looks for a low 95th percentile."""
    problem = Problem(plan)
    found = fastest(problem, robust=robust) or _misfit(problem)
    result = measure(found.played, lower_bound(problem), found.gains)
    check_memory(result)
    return found.played, result


def rehearse(played: Played, result: Result) -> tuple[Played, Result]:
    """What `run` found, played as lists, the way a trainer does: nobody waits for a rule.

    Varuna's rule holds a recompute back until the next stage has sent the gradient; a list does it in its turn.
    """
    again = Board(played.problem, played.wiring.pooled).play(played.orders())
    return again, measure(again, result.bound, result.gains)


def fastest(problem: Problem, *, robust: Jitter | None = None) -> Found | None:
    """The fastest of what the plan's schedule offers and memory allows."""
    if problem.plan.schedule == "auto":
        return auto(problem, poolings(problem), robust=robust)
    search = Search(problem, math.inf)
    search.try_all(candidates(problem.plan.schedule, problem.shape), poolings(problem))
    return None if search.best is None else Found(played=search.best, gains=())


def _misfit(problem: Problem) -> Found:
    """What does not fit is played all the same, to say what it would need."""
    first = candidates(problem.plan.schedule, problem.shape)[0]
    return Found(played=Board(problem, poolings(problem)[0]).play(first), gains=())


def poolings(problem: Problem) -> list[frozenset[int]]:
    """Which boundaries may be pooled: what the plan says, and for Atlas and auto every choice they may make."""
    plan, shape = problem.plan, problem.shape
    if plan.wan.sharing == "spatial" or plan.pipelines_per_cell == 1:
        return [frozenset()]
    if plan.schedule in ("atlas", "auto"):
        size = shape.num_stages * shape.num_microbatches * plan.pipelines_per_cell
        return list(pooling_choices(problem.wan_boundaries, thorough=size <= _THOROUGH))
    return [frozenset(problem.wan_boundaries)]


def check_memory(result: Result) -> None:
    """Refuse a step that holds more than memory or the plan's cap allows."""
    plan = result.plan
    for slot, memory in enumerate(result.memory):
        if plan.max_in_flight != "auto" and memory.in_flight > plan.max_in_flight:
            raise DoesNotFitError(
                f"schedule {plan.schedule} holds {memory.in_flight:g} microbatches in flight on stage {slot}, "
                f"max_in_flight is {plan.max_in_flight}"
            )
        if memory.total_bytes > memory.limit_bytes * (1 + 1e-9):
            raise DoesNotFitError(
                f"schedule {plan.schedule} with {plural(memory.in_flight, 'microbatch')} in flight on stage {slot} "
                f"needs {format_bytes(memory.total_bytes)} per GPU, {plan.memory_there(slot)}: "
                f"weights, gradients and optimizer {format_bytes(memory.static_bytes)}, "
                f"activations {format_bytes(memory.activations_bytes)}, "
                f"workspace {format_bytes(memory.workspace_bytes)}"
            )
