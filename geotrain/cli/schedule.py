"""`geotrain schedule`: the action lists of a plan, for other frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geotrain import interrupts
from geotrain.cli._output import check_writable, json_text
from geotrain.cli._plan import PlanArgument, ScheduleOption, opened

if TYPE_CHECKING:
    from geotrain.simulation import Result

Format = Literal["torch-csv", "json", "text"]


def command(
    plan: PlanArgument,
    format: Annotated[Format | None, typer.Option(help="How to write it; text, unless given.")] = None,
    schedule: ScheduleOption = None,
    pipeline: Annotated[
        int | None, typer.Option(metavar="N", help="With torch-csv: this pipeline of a cell; 0, unless given.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to a file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Export what each slot of a plan does, in which order.

    text: a line per slot (`2F0`: stage 2, forward, microbatch 0). json: also where the stages are and when each action
    is predicted to run. torch-csv: a row per rank, for `_load_csv` of torch.distributed.pipelining's schedule runtime
    and for torchtitan's pipeline_parallel_schedule_csv, which add sends and receives themselves. It holds F, B, I and
    W of one pipeline. It holds no R: torch recomputes inside its backward, by activation checkpointing of the model.

    Examples:

        geotrain schedule plan.yaml

        geotrain schedule plan.yaml --format torch-csv --out schedule.csv

        geotrain schedule plan.yaml --schedule auto --json | jq '.pipelines[0].slots[0].actions'
    """
    from geotrain.errors import InputError
    from geotrain.files import write_text
    from geotrain.simulation import simulate

    chosen = format or ("json" if json else "text")
    if json and chosen != "json":
        raise InputError(f"--json is --format json and does not go with --format {chosen}")
    if pipeline is not None and chosen != "torch-csv":
        raise InputError(f"--pipeline goes with --format torch-csv; {chosen} has all pipelines")
    check_writable(out, inputs=[plan])
    with interrupts.remembered(), opened(plan) as loaded:
        if pipeline is not None and not 0 <= pipeline < loaded.pipelines_per_cell:
            raise InputError(
                f"--pipeline is {pipeline} and must be 0 to {loaded.pipelines_per_cell - 1}, "
                f"as pipelines_per_cell is {loaded.pipelines_per_cell}"
            )
        result = simulate(loaded if schedule is None else loaded.change(schedule=schedule))
    if interrupts.asked():
        typer.echo("interrupted: this is the best so far", err=True)
    text = render(result, chosen, pipeline or 0)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"schedule: {out}  ({chosen})")


def render(result: Result, format: Format, pipeline: int) -> str:
    """The schedule in that format."""
    from geotrain.reports.schedule import pipelines, schedule_csv, schedule_json, schedule_text

    match format:
        case "torch-csv":
            return schedule_csv(pipelines(result)[pipeline])
        case "json":
            return json_text(schedule_json(result)) + "\n"
        case "text":
            return schedule_text(result)
