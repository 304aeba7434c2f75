"""The solver's answer to one model, and the schedule that it stands for."""

import math
from dataclasses import dataclass

from ortools.sat.python import cp_model

from geotrain.action import Kind, pack
from geotrain.schedule import Orders
from geotrain.simulation.exact.model import Model


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one model came to, in ticks. Infinite: no schedule is quick enough, or none was found."""

    step: float
    bound: float
    used_s: float = 0.0
    pooled: frozenset[int] = frozenset()
    orders: tuple[Orders, ...] = ()


def answer(model: Model, seconds: float) -> Answer:
    """The shortest step, if that is found and proven in time."""
    case, solver = model.case, cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = 0
    parameters.linearization_level = 0
    # Halve the range of the step while that is cheap: with a fine clock, raising the bound by ones takes for ever.
    parameters.binary_search_num_conflicts = 1000
    parameters.max_deterministic_time = max(seconds, 0.0)  # work that takes about that long
    parameters.max_time_in_seconds = 4 * max(seconds, 0.0) + 1
    status = solver.solve(model.cp)
    used_s = solver.response_proto.deterministic_time
    assert status != cp_model.MODEL_INVALID, model.cp.validate()
    if status == cp_model.INFEASIBLE:
        return Answer(step=math.inf, bound=math.inf, used_s=used_s)
    bound = math.ceil(solver.best_objective_bound) * case.unit
    if status == cp_model.UNKNOWN:
        return Answer(step=math.inf, bound=bound, used_s=used_s)
    return Answer(
        step=solver.value(model.step) * case.unit,
        bound=bound,
        used_s=used_s,
        pooled=case.wiring.pooled,
        orders=tuple(_orders(model, solver, pipeline) for pipeline in case.pipelines),
    )


def _orders(model: Model, solver: cp_model.CpSolver, pipeline: int) -> Orders:
    """What a pipeline does, in order of time."""
    slots: list[list[tuple[int, int, int, int, int]]] = [[] for _ in range(model.case.shape.num_stages)]
    for (whose, stage, kind, m), span in model.actions.items():
        weights = model.case.durations[Kind.W, stage]
        fused = weights == 0 or solver.value(model.fused.get((pipeline, stage, m), 0))
        skipped = kind == Kind.R and not solver.value(model.recomputes(pipeline, stage, m))
        if whose != pipeline or skipped or (kind == Kind.W and fused):
            continue
        shown = Kind.B if kind == Kind.I and fused else kind
        start = solver.value(span.start)
        slots[stage % len(slots)].append((start, start + span.size, m, kind, pack(stage, shown, m)))
    return Orders.of([code for *_, code in sorted(slot)] for slot in slots)
