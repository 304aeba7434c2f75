"""`geotrain demo`: the built-in examples, one compared, simulated and drawn, one live."""

from pathlib import Path
from typing import Annotated

import typer

from geotrain.cli import compare, simulate
from geotrain.cli._example import EXAMPLE
from geotrain.cli._output import JsonOption, check_writable, print_json
from geotrain.cli._plan import opened

command = typer.Typer(rich_markup_mode=None, add_completion=False)
_IN_MEMORY = Path("/dev/shm")


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
    from geotrain.reports.schedule import comparison_json, comparison_svg, comparison_table
    from geotrain.reports.step import result_json, summary_table
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


@command.command("live")
def live(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where live.html goes.")] = Path("out"),
    seconds: Annotated[
        int, typer.Option(metavar="S", min=10, max=3600, help="How long requests come, pauses included.")
    ] = 60,
    json: JsonOption = False,
) -> None:
    """Train over an emulated WAN and serve from its bubbles.

    Both at the same time, and both on one page.

    Real processes, sockets and requests: `geotrain launch` on a testbed of three data centers, `geotrain serve` beside
    it, and OpenAI's client, which sends a trace of requests in blocks with pauses between, so that steps with and
    without load are compared within one run. GPUs are emulated: they are busy for as long as a real one would be. The
    same plan and trace are then simulated. Takes about two minutes; without root or user namespaces there is no WAN.

    Examples:

        geotrain demo live

        geotrain demo live --seconds 200 --out out --json
    """
    import tempfile

    from geotrain.cli._ending import ended_by_signals
    from geotrain.errors import InputError
    from geotrain.files import write_text

    try:
        import fastapi  # noqa: F401
        import openai  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError(f"the live demo needs {error.name}: pip install 'geotrain[serve,train]' openai") from None
    from geotrain.demo.live import played
    from geotrain.reports.live import live_html, live_table

    page = out / "live.html"
    check_writable(page, inputs=[])
    memory = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="geotrain-live-", dir=memory) as scratch:
        found = played(Path(scratch), seconds, lambda words: typer.echo(words, err=True))
    write_text(page, live_html(found))
    if json:
        print_json(found.json())
        return

    from rich.console import Console

    Console(highlight=False).print(live_table(found))
    typer.echo(f"page: {page}  (open it in a browser)")
