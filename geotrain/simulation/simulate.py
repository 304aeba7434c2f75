"""The Plan on a virtual clock: tries what the plan's schedule offers, keeps the best, and reports it in figures."""

from geotrain.errors import DoesNotFitError
from geotrain.plan import Plan
from geotrain.schedule import candidates, pooling_choices
from geotrain.simulation.bound import lower_bound
from geotrain.simulation.metrics import measure
from geotrain.simulation.play import Played, play
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Result
from geotrain.units import format_bytes

_THOROUGH = 10_000
"""Microbatches x slots up to which a simulation is so quick that every choice is tried."""


def simulate(plan: Plan) -> Result:
    """Play one step of the plan; InputError where it cannot be played or does not fit."""
    problem = Problem(plan)
    played = best_play(problem)
    reduce, update = played.finish()
    finish_s = tuple(float(s) for s in problem.seconds(reduce + update))
    result = measure(played, lower_bound(problem, finish_s))
    check_memory(result)
    return result


def best_play(problem: Problem) -> Played:
    """The fastest of what the plan's schedule offers; the first of equals."""
    return min(
        (play(problem, schedule, pooled) for schedule in candidates(problem.plan.schedule, problem.shape)
         for pooled in _poolings(problem)),
        key=lambda played: (played.step_ticks, played.longest_span_ticks),
    )  # fmt: skip


def _poolings(problem: Problem) -> list[frozenset[int]]:
    """Which boundaries to pool: what the plan says, and for Atlas every choice it may make."""
    plan = problem.plan
    if plan.wan.sharing == "spatial" or plan.pipelines_per_cell == 1:
        return [frozenset()]
    if plan.schedule == "atlas":
        shape = problem.shape
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
                f"{format_bytes(memory.total_bytes)} per GPU, a {plan.datacenter_of(slot).gpu.name} in "
                f"{plan.stages[slot].dc!r} has {format_bytes(memory.limit_bytes)}: weights, gradients and optimizer "
                f"{format_bytes(memory.static_bytes)}, activations {format_bytes(memory.activations_bytes)}, "
                f"workspace {format_bytes(memory.workspace_bytes)}"
            )
