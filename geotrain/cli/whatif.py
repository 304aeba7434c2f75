"""`geotrain whatif`: the planner over a grid of changed clusters and jobs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from geotrain import interrupts
from geotrain.cli._output import JsonOption, check_writable, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geotrain.cluster import Cluster
    from geotrain.planner import Ask
    from geotrain.planner.whatif import Exploration, Row, Story, Workers
    from geotrain.workload import Job


def command(
    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="Cluster file: what there is.")],
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file: what is trained.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH=VALUES", help="A field and the values it takes; repeat it for a grid."),
    ] = None,
    story: Annotated[
        str | None, typer.Option(metavar="NAME", help="add-dc, lose-dc, fraction, halve or knee, instead of --vary.")
    ] = None,
    goal: Annotated[
        Literal["time", "cost"],
        typer.Option(help="What the planner looks for: most tokens/s, or least cost per token."),
    ] = "time",
    across: Annotated[
        Literal["any", "pipeline", "data"],
        typer.Option(help="What may cross the WAN: pipelines, or gradients of data-parallel copies."),
    ] = "any",
    stages: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only plans of this many stages.")] = None,
    schedule: Annotated[str, typer.Option(metavar="NAME", help="Schedule of the plans.")] = "auto",
    evaluations: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most plans to simulate for each point.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="Keep finished points there and do not redo them.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Local processes; left out: one for each core.")
    ] = None,
    on: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Processes of this machine, or the workers of a Ray cluster that is running."),
    ] = "local",
    csv: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Write the rows as CSV.")] = None,
    chart: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write the chart as SVG.")] = None,
    json: JsonOption = False,
) -> None:
    """Plan again and again while the cluster or the job changes.

    PATH is a field of the cluster file, or of the job file after `job.`. Entries of a list go by name or number:
    wan.default.rtt, wan.links.east-south.capacity, datacenters.south.nodes, datacenters.0.gpu, job.global_batch,
    job.model.layers.

    VALUES is a list with the unit at its end or on each (10,20,40ms), a range with its step (0..600:100), or words
    (h100,a100-80gb; unlimited).

    Stories: add-dc (the first 1, 2, ... data centers: is the next one worth it), lose-dc (each gone in turn), fraction
    (the second at 0 to 100% of the first), halve (less and less WAN bandwidth), knee (the least that hides the
    transfers). Each ends with its answer in a sentence.

    Ctrl-C shows what is done; with --resume the same command goes on from there.

    Examples:

        geotrain whatif cluster.yaml job.yaml --vary wan.default.rtt=10,20,40ms

        geotrain whatif cluster.yaml job.yaml --vary wan.default.pair_cap=1,5,25Gbit/s --chart cap.svg

        geotrain whatif cluster.yaml job.yaml --vary datacenters.south.nodes=0..600:100 --resume nodes.jsonl

        geotrain whatif cluster.yaml job.yaml --story knee

        geotrain whatif cluster.yaml job.yaml --story add-dc --json | jq -r .answer
    """
    from geotrain.cluster import Cluster
    from geotrain.errors import RunError
    from geotrain.planner.whatif import Exploration, Notebook
    from geotrain.workload import Job

    check_writable(csv, chart, resume, inputs=[cluster, job])
    ask = _ask(goal, across, stages, schedule, evaluations)
    told = _story(vary or [], story, Cluster.load(cluster), Job.load(job), ask)
    failed: RunError | None = None
    interrupted = False
    with Notebook(resume) as notebook:
        exploration = Exploration(workers=_workers(on, workers), notebook=notebook)
        try:
            with interrupts.remembered():
                _run(exploration, told)
        except RunError as error:
            failed = error
        except KeyboardInterrupt:
            interrupted = True
    _answer(exploration.rows, exploration.sentence, csv=csv, chart=chart, json=json)
    if interrupted or failed:
        done = f"{len(exploration.rows)} of {len(exploration.asked)} points are done"
        go_on = f"run it again to go on from {resume}" if resume else "with --resume FILE the next run would go on here"
        typer.echo(f"{done}; {go_on}", err=True)
    if failed:
        raise failed
    if interrupted:
        raise typer.Exit(130)


def _ask(
    goal: Literal["time", "cost"],
    across: Literal["any", "pipeline", "data"],
    stages: int | None,
    schedule: str,
    evaluations: int | None,
) -> Ask:
    from geotrain.errors import InputError
    from geotrain.hints import hint
    from geotrain.plan import ScheduleName
    from geotrain.planner import Ask

    names: tuple[ScheduleName, ...] = get_args(ScheduleName)
    chosen = next((name for name in names if name == schedule), None)
    if chosen is None:
        raise InputError(f"--schedule is {schedule!r} and must be a schedule: {hint(schedule, names)}")
    ask = Ask(goal=goal, across=across, stages=stages, schedule=chosen)
    return ask if evaluations is None else replace(ask, evaluations=evaluations)


def _story(vary: Sequence[str], story: str | None, cluster: Cluster, job: Job, ask: Ask) -> Story:
    from geotrain.errors import InputError
    from geotrain.planner.whatif import STORIES, find_story, grid, parse_axis, plain_grid

    if story is not None and vary:
        raise InputError(f"--story {story} has points of its own: give it or --vary, not both")
    if story is not None:
        return find_story(story)(cluster, job, ask)
    if not vary:
        raise InputError(
            f"give --vary PATH=VALUES, such as 'wan.default.rtt=10,20,40ms', or --story, one of {', '.join(STORIES)}"
        )
    return plain_grid(grid(cluster, job, [parse_axis(text, cluster, job) for text in vary], ask))


def _workers(on: Literal["local", "ray"], number: int | None) -> Workers:
    from geotrain.errors import InputError
    from geotrain.planner.whatif import InProcess, Processes, Ray

    if on == "ray":
        if number is not None:
            raise InputError("--workers counts local processes; with --on ray the Ray cluster decides")
        return Ray()
    number = number or len(os.sched_getaffinity(0))
    return InProcess() if number == 1 else Processes(number)


def _run(exploration: Exploration, story: Story) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    # One point may take minutes: the time that has passed shows that it is at work.
    columns = (
        TextColumn("planning"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("planning", total=None)
        exploration.watch = lambda done, asked: bar.update(task, completed=done, total=asked)
        exploration.run(story)


def _answer(rows: Sequence[Row], sentence: str, *, csv: Path | None, chart: Path | None, json: bool) -> None:
    from geotrain.files import write_text
    from geotrain.reports.planning import whatif_csv, whatif_json, whatif_svg, whatif_table

    written = []
    if csv is not None and rows:
        write_text(csv, whatif_csv(rows))
        written.append(f"rows:  {csv}")
    if chart is not None and rows:
        write_text(chart, whatif_svg(rows))
        written.append(f"chart: {chart}")
    if json:
        print_json(whatif_json(rows, sentence))
        return

    from rich.console import Console

    # Not on a terminal a row is a line, however long, for grep and the like.
    Console(highlight=False, width=None if sys.stdout.isatty() else 1000).print(whatif_table(rows, sentence))
    for line in written:
        typer.echo(line)
