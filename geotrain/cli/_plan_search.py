"""The searches behind `geotrain plan`: the question, the best plan, the frontier, and what to fall back to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from geotrain import interrupts
from geotrain.cli._quantity import quantity

if TYPE_CHECKING:
    from geotrain.cli._progress import Line
    from geotrain.planner import Across, Answer, Ask, Scored
    from geotrain.planner.explain import Explanation, Worth
    from geotrain.planner.sensitivity import Change
    from geotrain.planner.survive import Fallback
    from geotrain.workload import Model

_MOST_LAYOUTS = 20_000
"""A search that considered more than this is repeated for every data center only where that is asked for."""


def make_ask(
    goal: Literal["time", "cost"] | None,
    tokens: str | None,
    deadline: str | None,
    max_cost: str | None,
    across: Across,
    stages: int | None,
    schedule: str,
    budget: str | None,
    evaluations: int | None,
    leave_room_for: str | None,
) -> Ask:
    """The options as a question; InputError where they do not go together."""
    import math
    from typing import get_args

    from geotrain.errors import InputError
    from geotrain.hints import hint
    from geotrain.plan import ScheduleName
    from geotrain.planner import Ask
    from geotrain.units import COUNT, TIME

    for option, value in (("--deadline", deadline), ("--max-cost", max_cost)):
        if value is not None and tokens is None:
            raise InputError(f"{option} is {value!r} and needs --tokens: of how many tokens, such as '300B'")
    chosen = next((name for name in get_args(ScheduleName) if name == schedule), None)
    if chosen is None:
        raise InputError(f"--schedule is {schedule!r}: {hint(schedule, get_args(ScheduleName))}")
    model = None if leave_room_for is None else _find_model(leave_room_for)
    if model is not None and across == "data":
        raise InputError("--leave-room-for goes with --across pipeline: prefill is not yet played beside replicas")
    return Ask(
        goal=goal or ("cost" if deadline is not None and max_cost is None else "time"),
        tokens=quantity("--tokens", tokens, COUNT) if tokens else 0.0,
        deadline_s=quantity("--deadline", deadline, TIME) if deadline else math.inf,
        max_cost=quantity("--max-cost", max_cost, COUNT) if max_cost else math.inf,
        across=across if model is None else "pipeline",
        leave_room_for=model,
        stages=stages,
        schedule=chosen,
        seconds=quantity("--budget", budget, TIME) if budget else math.inf,
        evaluations=evaluations,
    )


def _find_model(name: str) -> Model:
    from geotrain.errors import InputError
    from geotrain.workload.catalog import find_model

    try:
        return find_model(name)
    except ValueError as error:
        raise InputError(f"--leave-room-for is {name!r} and {error}") from None


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the searches came to."""

    answer: Answer
    runnable: Scored | None = None
    """The best plan that can be trained, where the answer's cannot."""
    fallbacks: list[Fallback] | None = None
    without: dict[str, Scored | None] = field(default_factory=dict)
    """The best plans without one data center, where that was looked for."""
    changes: list[Change] = field(default_factory=list)
    """What more of one thing would bring, likewise."""
    why_not: str = "Ctrl-C ended the search"
    """Why something was not looked for."""

    def worth(self) -> tuple[Worth, ...]:
        """What each data center brings."""
        from geotrain.planner.explain import worth

        return worth(self.answer, self.without, why_not=self.why_not)

    def explain(self) -> Explanation:
        """Why this plan."""
        from geotrain.planner.explain import explain

        return explain(self.answer, self.without, self.changes, why_not=self.why_not)


def search(
    cluster_file: Path, job_file: Path, ask: Ask, line: Line, *, survive: bool, pareto: bool, thorough: bool
) -> Found:
    """The best plan; the frontier, plans to fall back to, and what the next data center brings.

    What a data center brings is found by a search without it; where searches are long, only with `thorough` or
    `survive`. With `thorough` others find what more of one thing would bring. What any of them finds may be the best
    plan of all; then it is the answer, and the searches around it are made for it.
    """
    from geotrain.cluster import Cluster
    from geotrain.errors import InputError
    from geotrain.planner.pareto import with_frontier
    from geotrain.planner.searches import Searches, joined
    from geotrain.planner.sensitivity import sensitivity
    from geotrain.planner.survive import alone_in_each, fallbacks, without_each
    from geotrain.planner.trainable import best_runnable
    from geotrain.workload import Job

    cluster, job = Cluster.load(cluster_file), Job.load(job_file)
    searches = Searches(line.watch)

    def find(cluster: Cluster, job: Job, ask: Ask) -> Answer:
        answer = searches.find(cluster, job, ask)
        if answer.ending == "interrupted":
            raise KeyboardInterrupt
        return answer

    if ask.stages is not None and ask.stages > job.model.layers:
        raise InputError(f"--stages is {ask.stages} and must be at most {job.model.layers}, the layers of {job_file}")
    try:
        found = Found(answer=searches.find(cluster, job, ask))
    except InputError as error:
        raise type(error)(f"{job_file} on {cluster_file}: {error}") from error
    if found.answer.ending == "interrupted":
        interrupts.remember()
        return found
    skipped = "" if survive or thorough else _why_not(found.answer)
    with going_on():
        if pareto:
            line.begin("planning the frontier")
            found = replace(found, answer=with_frontier(cluster, job, found.answer, find))
        planned = None
        while found.answer.best is not planned:
            planned = found.answer.best
            line.begin("planning what can be trained")
            found = replace(found, runnable=best_runnable(cluster, job, found.answer, find))
            if survive:
                line.begin("planning for losses")
                found = replace(found, fallbacks=fallbacks(cluster, job, found.answer, find))
            if not skipped:
                line.begin("planning without each data center")
                found = replace(found, without=without_each(cluster, job, found.answer, find))
                line.begin("planning for each data center alone")
                alone = alone_in_each(cluster, job, found.answer, find)
                found = replace(found, answer=joined(found.answer, alone))
            if thorough:
                line.begin("planning with more")
                found = replace(found, changes=sensitivity(cluster, job, found.answer, find))
            found = replace(found, answer=joined(found.answer, searches.answers))
        found = replace(found, why_not=skipped)
    line.begin("explaining")
    return found


def _why_not(answer: Answer) -> str:
    """Why the search is not repeated for every data center unasked; empty where it is."""
    if answer.search_s > answer.ask.seconds:
        return "--budget ended the search"
    return "the search is long" if answer.considered > _MOST_LAYOUTS else ""


@contextmanager
def going_on() -> Iterator[None]:
    """Ctrl-C ends what is inside, but the plan that was found before is kept."""
    try:
        yield
    except KeyboardInterrupt:
        interrupts.remember()
        typer.echo("interrupted: the plan stands; what was still being looked for is left out", err=True)
