"""The same job on the same machines, every way we know: each schedule, one or many connections, both sharings."""

from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from geotrain.errors import InputError
from geotrain.plan import Plan, ScheduleName, Sharing, WanUse
from geotrain.simulation.problem import Problem
from geotrain.simulation.result import Result
from geotrain.simulation.simulate import simulate

Choice = tuple[ScheduleName, int | Literal["auto"], Sharing]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to run the plan, and what became of it."""

    schedule: ScheduleName
    connections: int
    """TCP connections per pair, at most over the links in use."""
    sharing: Sharing
    outcome: Result | InputError
    """The step, or why it cannot run."""


def choices(plan: Plan) -> list[Choice]:
    """Every schedule x {one, many} connections x {spatial, temporal}."""
    many = plan.wan.connections if plan.wan.connections != 1 else "auto"
    return list(product(get_args(ScheduleName), (1, many), get_args(Sharing)))


def try_out(plan: Plan, choice: Choice) -> Variant:
    """Simulate the plan as if it had made that choice."""
    schedule, connections, sharing = choice
    wan = WanUse(connections=connections, sharing=sharing)
    outcome: Result | InputError
    try:
        outcome = simulate(
            plan.change(
                schedule=schedule,
                interleave=max(2, plan.interleave) if schedule == "interleaved" else 1,
                wan=wan,
            )
        )
    except InputError as error:
        outcome = error
    used = max(hop.own.connections for hop in Problem(plan.change(wan=wan)).hops) if len(plan.stages) > 1 else 1
    return Variant(schedule=schedule, connections=used, sharing=sharing, outcome=outcome)
