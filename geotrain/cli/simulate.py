"""`geotrain simulate`: one step of a plan, in figures and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain.cli._output import JsonOption, print_json
from geotrain.cli._plan import PlanArgument, opened

if TYPE_CHECKING:
    from geotrain.simulation import Result


def command(
    plan: PlanArgument,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the timeline for ui.perfetto.dev.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a self-contained HTML report.")] = None,
    json: JsonOption = False,
) -> None:
    """Simulate one training step of a plan.

    Step time against the lower bound, GPU utilization, memory, WAN use, money, and where the time went.

    Examples:

        geotrain simulate plan.yaml

        geotrain simulate plan.yaml --report step.html --trace step.json

        geotrain simulate plan.yaml --json | jq .step_time_s
    """
    from geotrain.reports import result_json, summary_table
    from geotrain.simulation import simulate

    with opened(plan) as loaded:
        result = simulate(loaded)
    written = write_files(result, trace=trace, report=report)
    if json:
        print_json(result_json(result))
        return

    from rich.console import Console

    Console(highlight=False).print(summary_table(result))
    for line in written:
        typer.echo(line)


def write_files(result: Result, *, trace: Path | None, report: Path | None) -> list[str]:
    """Write what was asked for; returns a line about each file."""
    from geotrain.files import write_text
    from geotrain.reports import html_report, write_perfetto

    lines = []
    if report is not None:
        write_text(report, html_report(result))
        lines.append(f"report: {report}  (open it in a browser)")
    if trace is not None:
        write_perfetto(result, trace)
        lines.append(f"trace:  {trace}  (open it at ui.perfetto.dev)")
    return lines
