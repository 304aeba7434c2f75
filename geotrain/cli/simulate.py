"""`geotrain simulate`: one step of a plan, in figures and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain import interrupts
from geotrain.cli._jitter import EXAMPLE, parse_jitter
from geotrain.cli._output import JsonOption, check_writable, print_json
from geotrain.cli._plan import PlanArgument, ScheduleOption, opened

if TYPE_CHECKING:
    from geotrain.simulation import Result
    from geotrain.simulation.exact import Exact


def command(
    plan: PlanArgument,
    schedule: ScheduleOption = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the timeline for ui.perfetto.dev.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a self-contained HTML report.")] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the timeline as JSON, for `geotrain compare-runs`.")
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(metavar="SPREAD", help=f"Replay under random variation, e.g. 5% or {EXAMPLE}."),
    ] = None,
    robust: Annotated[
        bool, typer.Option("--robust", help="With schedule auto and --jitter: look for a low 95th percentile.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also find the best possible step with a solver, for small plans.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Simulate one training step of a plan.

    Step time against the lower bound, GPU utilization, memory, WAN use, money, and where the time went.
    Ctrl-C shows the best so far and ends with exit code 130.

    Examples:

        geotrain simulate plan.yaml

        geotrain simulate plan.yaml --schedule auto --report step.html --trace step.json

        geotrain simulate plan.yaml --schedule auto --jitter compute=5%,wan=10% --robust

        geotrain simulate plan.yaml --schedule auto --exact

        geotrain simulate plan.yaml --json | jq .step_time_s
    """
    from geotrain.errors import InputError
    from geotrain.reports.step import exact_json, exact_sentence, result_json, spread_json, spread_table, summary_table
    from geotrain.simulation import rehearse, run, spread

    check_writable(trace, report, timeline, inputs=[plan])
    variation = None if jitter is None else parse_jitter(jitter)
    with opened(plan) as loaded:
        chosen = loaded if schedule is None else loaded.change(schedule=schedule)
        if robust and (variation is None or chosen.schedule != "auto"):
            raise InputError("--robust needs --jitter, to know against what, and the schedule auto")
        proof = varied = None
        with interrupts.remembered():
            played, result = run(chosen, robust=variation if robust else None)
            try:
                interrupts.check()
                proof = solve_exactly(result) if exact else None
                varied = None if variation is None else spread(played, variation)
            except KeyboardInterrupt:
                interrupts.remember()
        if interrupts.asked():
            typer.echo("interrupted: this is the best so far; what was still to be done is left out", err=True)
    written = write_files(result, trace=trace, report=report)
    if timeline is not None:
        from geotrain.training.recording import Recording

        Recording.of(*rehearse(played, result)).save(timeline)
        written.append(f"timeline: {timeline}  (for `geotrain compare-runs`)")
    if json:
        answer = result_json(result)
        if varied is not None:
            answer["jitter"] = spread_json(varied)
        if proof is not None:
            answer["exact"] = exact_json(proof, result)
        print_json(answer)
        return

    from rich.console import Console

    console = Console(highlight=False)
    console.print(summary_table(result))
    if varied is not None:
        console.print("", spread_table(varied), sep="\n")
    if proof is not None:
        console.print("", exact_sentence(proof, result), sep="\n")
    for line in written:
        typer.echo(line)


def solve_exactly(result: Result) -> Exact:
    """The best possible step of the plan, as far as half a minute goes."""
    from geotrain.errors import InputError
    from geotrain.simulation.problem import Problem

    try:
        from geotrain.simulation.exact import solve
    except ImportError:
        raise InputError("--exact needs OR-Tools: pip install 'geotrain[exact]'") from None
    return solve(Problem(result.plan), hint_step_s=result.step_time_s)


def write_files(result: Result, *, trace: Path | None, report: Path | None) -> list[str]:
    """Write what was asked for; returns a line about each file."""
    from geotrain.files import write_text
    from geotrain.reports.step import html_report, write_perfetto

    lines = []
    if report is not None:
        write_text(report, html_report(result))
        lines.append(f"report: {report}  (open it in a browser)")
    if trace is not None:
        write_perfetto(result, trace)
        lines.append(f"trace:  {trace}  (open it at ui.perfetto.dev)")
    return lines
