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
    """Every schedule x {one, many} connections x {spatial, temporal}; once where many are one, or nothing is shared."""
    many = plan.wan.connections if plan.wan.connections != 1 else "auto"
    connections = (1, many) if _connections(plan, many) > 1 else (1,)
    shares = plan.pipelines_per_cell > 1 and Problem(plan).wan_boundaries
    return list(product(get_args(ScheduleName), connections, get_args(Sharing) if shares else (plan.wan.sharing,)))


def _connections(plan: Plan, wanted: int | Literal["auto"]) -> int:
    """TCP connections per pair, at most over the links in use; one if there is none."""
    hops = Problem(plan.change(wan=WanUse(connections=wanted, sharing=plan.wan.sharing))).hops
    return max((hop.own.connections for hop in hops), default=1)


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
    return Variant(schedule=schedule, connections=_connections(plan, connections), sharing=sharing, outcome=outcome)
