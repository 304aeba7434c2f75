"""`geotrain demo`: the built-in examples, one compared, simulated and drawn, one live."""

from pathlib import Path
from typing import Annotated

import typer

from geotrain.cli import compare, simulate
from geotrain.cli._demo_live import live
from geotrain.cli._example import EXAMPLE
from geotrain.cli._output import JsonOption, print_json
from geotrain.cli._plan import opened

command = typer.Typer(rich_markup_mode=None, add_completion=False)
command.command("live")(live)


@command.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where report, trace and chart go.")] = Path("out"),
    json: JsonOption = False,
) -> None:
    """Run the built-in example: three data centers, 40 ms apart.

    Compares every schedule for GPT-A, simulates the best published one (Atlas) in detail, and writes report, trace
    and chart.

    `live` trains and serves instead, with real processes.

    Examples:

        geotrain demo --out out

        geotrain demo live
    """
    if context.invoked_subcommand is not None:
        return
    from geotrain.files import write_text
    from geotrain.reports import comparison_json, comparison_svg, comparison_table, result_json, summary_table
    from geotrain.simulation import simulate as simulate_plan

    plan = EXAMPLE / "plan.yaml"
    comparison = compare.run(plan, show_progress=not json)
    with opened(plan) as loaded:
        result = simulate_plan(loaded)
    chart = out / "compare.svg"
    write_text(chart, comparison_svg(comparison.rows))
    written = simulate.write_files(result, trace=out / "trace.json", report=out / "report.html")
    if json:
        print_json({"compare": comparison_json(comparison), "simulate": result_json(result)})
        return

    from rich.console import Console

    console = Console(highlight=False)
    console.print("[bold]Every schedule on the same GPUs[/bold]")
    console.print(comparison_table(comparison.rows, comparison.infeasible))
    console.print("\n[bold]Atlas in detail[/bold]")
    console.print(summary_table(result))
    for line in [*written, f"chart:  {chart}"]:
        typer.echo(line)
    typer.echo("your own: geotrain init my-plan")
