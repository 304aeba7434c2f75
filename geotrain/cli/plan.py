"""`geotrain plan`: the best plan for a job on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geotrain import interrupts
from geotrain.cli._output import JsonOption, print_json
from geotrain.cli._plan_files import Files, write_files
from geotrain.cli._plan_search import make_ask, search
from geotrain.cli._progress import shown

if TYPE_CHECKING:
    from geotrain.cli._plan_search import Found
    from geotrain.planner.explain import Explanation


def command(
    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="Cluster file: what there is.")],
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file: what is trained.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="PLAN.yaml", help="Write the plan, for `geotrain simulate`.")
    ] = None,
    goal: Annotated[
        Literal["time", "cost"] | None,
        typer.Option(help="Most tokens/s, or least cost per token; time, unless --deadline alone is given."),
    ] = None,
    tokens: Annotated[str | None, typer.Option(metavar="300B", help="Tokens of the whole training.")] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="30d", help="Longest time for --tokens; alone, it finds the cheapest plan in time."),
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option(metavar="2M", help="Most money for --tokens; finds the fastest plan for it.")
    ] = None,
    pareto: Annotated[bool, typer.Option("--pareto", help="Show the frontier of time against cost.")] = False,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Write a picture: data centers and links, or the frontier of --pareto."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a self-contained HTML report.")
    ] = None,
    across: Annotated[
        Literal["any", "pipeline", "data"],
        typer.Option(
            help="What may cross the WAN: activations of a pipeline, gradients of data parallelism, or either."
        ),
    ] = "any",
    stages: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only plans of this many stages.")] = None,
    schedule: Annotated[str, typer.Option(metavar="NAME", help="Schedule of the plan.")] = "auto",
    budget: Annotated[
        str | None,
        typer.Option(metavar="30s", help="Search up to this long, by the clock; otherwise up to 300 simulations."),
    ] = None,
    evaluations: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most plans to simulate; the same N gives the same plan.")
    ] = None,
    leave_room_for: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Keep memory free for prefill of this model of `geotrain catalog`."),
    ] = None,
    survive: Annotated[
        Literal["dc"] | None,
        typer.Option(metavar="dc", help="Also plan for the loss of each data center: PLAN.without-DC.yaml."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what binds, what more would bring, and why the others lost.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find the best plan for a job on a cluster.

    Which data centers, how many GPUs of each, and in which layout. Searches tensor, pipeline and data parallelism,
    layers per stage, the order of data centers, pipelines that pool their WAN bandwidth, microbatch size and schedule,
    simulates the best, and shows the published algorithm (Atlas) beside the answer. Ctrl-C ends the search with the
    best so far and exit code 130.

    Examples:

        geotrain plan cluster.yaml job.yaml -o plan.yaml

        geotrain plan cluster.yaml job.yaml --explain --report plan.html

        geotrain plan cluster.yaml job.yaml --tokens 300B --deadline 30d

        geotrain plan cluster.yaml job.yaml --tokens 300B --max-cost 2M

        geotrain plan cluster.yaml job.yaml --pareto --chart frontier.svg

        geotrain plan cluster.yaml job.yaml -o plan.yaml --survive dc

        geotrain plan cluster.yaml job.yaml -o plan.yaml --leave-room-for llama-3.1-8b

        geotrain plan cluster.yaml job.yaml --budget 30s --json
    """
    files = Files(cluster=cluster, job=job, out=out, chart=chart, report=report)
    files.check()
    ask = make_ask(goal, tokens, deadline, max_cost, across, stages, schedule, budget, evaluations, leave_room_for)
    with interrupts.remembered(), shown(wanted=not json) as line:
        explained = explain or report is not None
        found = search(cluster, job, ask, line, survive=survive is not None, pareto=pareto, thorough=explained)
    explanation = found.explain() if explained else None
    origin = files.made_by()
    written = write_files(files, found, origin, explanation, pareto=pareto)
    if json:
        from geotrain.reports.planning import answer_json

        asked = explanation if explain else None
        answer = answer_json(
            found.answer,
            origin=origin,
            worths=found.worth(),
            explanation=asked,
            fallbacks=found.fallbacks,
            runnable=found.runnable,
        )
        print_json(answer)
        return
    print_answer(found, explanation if explain else None, pareto=pareto)
    for file in written or ["nothing written; -o plan.yaml keeps the plan"]:
        typer.echo(file)


def print_answer(found: Found, explanation: Explanation | None, *, pareto: bool) -> None:
    """What was asked for, as text."""
    from rich.console import Console

    from geotrain.reports.planning import answer_table, explanation_table, fallback_table, frontier_table

    console = Console(highlight=False)
    console.print(answer_table(found.answer, found.worth(), found.runnable))
    if explanation is not None:
        console.print("", explanation_table(explanation), sep="\n")
    if pareto:
        console.print("", frontier_table(found.answer), sep="\n")
    if found.fallbacks is not None:
        console.print("", fallback_table(found.fallbacks), sep="\n")
