"""`geotrain compare`: every schedule on the same plan, best first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain import interrupts
from geotrain.cli._output import JsonOption, check_writable, print_json
from geotrain.cli._plan import PlanArgument, opened

if TYPE_CHECKING:
    from geotrain.reports.schedule import Comparison


def command(
    plan: PlanArgument,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the chart as SVG.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare every schedule on the same plan, best first.

    Each with one and with many connections, with spatial and temporal sharing: the same job on the same machines. What
    cannot run is listed with the reason. Ctrl-C shows what is done and ends with exit code 130.

    Example: geotrain compare plan.yaml --chart compare.svg
    """
    from geotrain.files import write_text
    from geotrain.reports.schedule import comparison_json, comparison_svg, comparison_table

    check_writable(chart, inputs=[plan])
    comparison = run(plan, show_progress=not json)
    if chart is not None:
        write_text(chart, comparison_svg(comparison.rows))
    if json:
        print_json(comparison_json(comparison))
        return

    from rich.console import Console

    Console(highlight=False).print(comparison_table(comparison.rows, comparison.infeasible))
    if chart is not None:
        typer.echo(f"chart: {chart}")


def run(path: Path, *, show_progress: bool) -> Comparison:
    """Simulate all variants of the plan in that file."""
    from rich.console import Console
    from rich.progress import track

    from geotrain.errors import DoesNotFitError
    from geotrain.reports.schedule import compared
    from geotrain.simulation import choices, try_out

    console = Console(stderr=True)
    with opened(path) as plan:
        steps = track(
            choices(plan),
            description="simulating",
            console=console,
            transient=True,
            disable=not (show_progress and console.is_terminal),
        )
        variants = []
        with interrupts.remembered():
            try:
                for choice in steps:
                    interrupts.check()
                    variants.append(try_out(plan, choice))
            except KeyboardInterrupt:
                if not variants:
                    raise
                interrupts.remember()
                typer.echo(f"interrupted: {len(variants)} of {len(choices(plan))} variants are compared", err=True)
        comparison = compared(variants)
        if not comparison.rows:
            raise DoesNotFitError(f"no schedule can run; {comparison.infeasible[0][0]}: {comparison.infeasible[0][3]}")
        return comparison
