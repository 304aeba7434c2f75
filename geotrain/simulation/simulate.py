"""The Plan on a virtual clock: tries what the plan's schedule offers, keeps the best, and reports it in figures."""

import math

from geotrain.errors import DoesNotFitError
from geotrain.plan import Plan
from geotrain.schedule import candidates, pooling_choices
from geotrain.simulation.auto import auto
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.jitter import Jitter
from geotrain.simulation.metrics import measure
from geotrain.simulation.play import Played
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Gain, Result
from geotrain.simulation.search import Search
from geotrain.units import format_bytes

_THOROUGH = 10_000
"""Microbatches x slots up to which a simulation is so quick that every choice is tried."""


def simulate(plan: Plan) -> Result:
    """Play one step of the plan; InputError where it cannot be played or does not fit."""
    return run(plan)[1]


def run(plan: Plan, *, robust: Jitter | None = None) -> tuple[Played, Result]:
    """Play one step of the plan, and its figures; with `robust`, auto looks for a low 95th percentile."""
    problem = Problem(plan)
    gains: tuple[Gain, ...] = ()
    if plan.schedule == "auto":
        found = auto(problem, poolings(problem), robust=robust)
        played, gains = found.played, found.gains
    else:
        played = best_play(problem)
    result = measure(played, lower_bound(problem), gains)
    check_memory(result)
    return played, result


def best_play(problem: Problem) -> Played:
    """The fastest of what the plan's schedule offers; the first of equals."""
    made = candidates(problem.plan.schedule, problem.shape)
    search = Search(problem, math.inf)
    search.try_all(made, poolings(problem))
    # What does not fit is played all the same, to say what it would need.
    return search.best or search.board(poolings(problem)[0]).play(made[0])


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
                f"schedule {plan.schedule} with {memory.in_flight:g} microbatches in flight on stage {slot} needs "
                f"{format_bytes(memory.total_bytes)} per GPU, the {plan.datacenter_of(slot).gpu.name} in "
                f"{plan.stages[slot].dc!r} has {format_bytes(memory.limit_bytes)}: weights, gradients and optimizer "
                f"{format_bytes(memory.static_bytes)}, activations {format_bytes(memory.activations_bytes)}, "
                f"workspace {format_bytes(memory.workspace_bytes)}"
            )
