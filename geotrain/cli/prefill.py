"""`geotrain prefill`: prompts worked off in the bubbles of a training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain import interrupts
from geotrain.cli._jitter import EXAMPLE as JITTER
from geotrain.cli._jitter import parse_jitter
from geotrain.cli._output import JsonOption, check_writable, print_json
from geotrain.cli._plan import PlanArgument, ScheduleOption, opened
from geotrain.cli._prefill_calibrate import calibrate
from geotrain.cli._prefill_simulate import find_models, followed, parse_kill, parse_rate, read, shared_out
from geotrain.cli._quantity import quantity
from geotrain.cli._weather import EXAMPLE as SPELL
from geotrain.cli._weather import parse_spell

if TYPE_CHECKING:
    from geotrain.simulation.prefill.outcome import Study

_MODEL = "llama-3.1-8b"
command = typer.Typer(rich_markup_mode=None, add_completion=False)
command.command("calibrate")(calibrate)


@command.callback(
    epilog="To begin: geotrain prefill simulate plan.yaml azure-conversation --rate max --duration '1 min'",
    invoke_without_command=True,
)
def about(context: typer.Context) -> None:
    """Say what prefill in the bubbles of a training would bring.

    `simulate` plays a trace of requests against a plan's bubbles; `calibrate` fits how long prefill takes to
    measurements.

    Examples:

        geotrain prefill simulate plan.yaml trace.csv --report prefill.html

        geotrain prefill calibrate times.csv --write prefill.yaml
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@command.command("simulate")
def simulate(
    plan: PlanArgument,
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="File of requests; or azure-conversation, azure-code, mooncake-conversation: one made up like it.",
        ),
    ],
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="x4: four times the trace's; 20/s; max: half more than the bubbles hold."),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Repeat or cut the trace to last that long, e.g. '5 min'.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Model of `geotrain catalog`, {_MODEL} if not given; requests take turns among several.",
        ),
    ] = None,
    slo: Annotated[str, typer.Option(metavar="TIME", help="Longest time to first token.")] = "2 s",
    degree: Annotated[
        int | None, typer.Option(metavar="Q", min=1, help="Slots per instance; if not given, as few as memory allows.")
    ] = None,
    guard: Annotated[str, typer.Option(metavar="TIME", help="Least time left free before training.")] = "0.2 ms",
    times: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prefill times that `geotrain prefill calibrate` wrote.")
    ] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="SPREAD", help=f"Random variation of training, e.g. step=2% or {JITTER}.")
    ] = None,
    spell: Annotated[
        list[str] | None, typer.Option(metavar="SPELL", help=f"A slow time, e.g. '{SPELL}'; may be repeated.")
    ] = None,
    kill: Annotated[
        list[str] | None, typer.Option(metavar="SLOT@TIME", help="A slot dies, e.g. '3@60s'; may be repeated.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Another seed, another luck; 0, or what --jitter says.")
    ] = None,
    schedule: ScheduleOption = None,
    only_ours: Annotated[bool, typer.Option("--only-ours", help="Leave out the other ways of filling.")] = False,
    trace_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write training and prefill for ui.perfetto.dev.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a self-contained HTML report.")] = None,
    json: JsonOption = False,
) -> None:
    """Play a trace of requests against the bubbles of a plan.

    How busy the GPUs are before and after, how much slower training gets, how long first tokens take against as many
    dedicated GPUs, how many requests meet the SLO, and what became of every bubble second; beside it no filling,
    filling whatever is idle, a fixed share of every bubble, and an oracle that knows the future.

    TRACE is a CSV of Azure's (TIMESTAMP, ContextTokens, GeneratedTokens) or of your own (arrival_s, input_tokens, and
    if you like output_tokens, model, tenant, priority), or JSON lines of Mooncake's (timestamp in ms, input_length,
    output_length, hash_ids); gzip is fine. Rejected requests count as missed.

    Examples:

        geotrain prefill simulate plan.yaml azure-conversation --rate max --duration '1 min'

        geotrain prefill simulate plan.yaml trace.csv --rate x4 --slo '1 s' --report prefill.html --trace-out steps.json

        geotrain prefill simulate plan.yaml trace.csv --jitter step=2%,kind=heavy --spell 'wan x2 from 60 s for 1 min'

        geotrain prefill simulate plan.yaml trace.csv --kill 3@60s --model llama-3.1-8b --model qwen2.5-7b

        geotrain prefill simulate plan.yaml trace.csv --json | jq '.gpu_utilization_before, .gpu_utilization_after'
    """
    from dataclasses import replace
    from time import perf_counter

    from geotrain.errors import InputError
    from geotrain.prefill.calibration import Calibrations
    from geotrain.prefill.settings import Settings
    from geotrain.reports.prefill import prefill_json, prefill_table
    from geotrain.simulation.prefill.scene import Scene
    from geotrain.simulation.prefill.study import study
    from geotrain.simulation.prefill.weather import Weather
    from geotrain.units import TIME

    check_writable(trace_out, report, inputs=[plan, Path(trace), times])
    settings = Settings(slo_s=quantity("--slo", slo, TIME), degree=degree, guard_s=quantity("--guard", guard, TIME))
    variation = None if jitter is None else parse_jitter(jitter)
    if variation is not None and seed is not None:
        variation = replace(variation, seed=seed)
    weather = Weather(jitter=variation, spells=tuple(map(parse_spell, spell or [])))
    deaths = tuple(map(parse_kill, kill or []))
    models = find_models(model or [_MODEL])
    calibrations = None if times is None else Calibrations.load(times)
    scaled = None if rate is None else parse_rate(rate)
    duration_s = None if duration is None else quantity("--duration", duration, TIME)
    requests = shared_out(read(trace, seed=seed or 0), models)
    with interrupts.remembered(), opened(plan) as loaded:
        scene = Scene(
            plan=loaded if schedule is None else loaded.change(schedule=schedule),
            models=models,
            settings=settings,
            weather=weather,
            deaths=deaths,
            calibrations=calibrations,
            seed=seed or 0,
            clock=perf_counter,
        )
        for slot, _ in deaths:
            if slot >= len(scene.slots):
                raise InputError(f"--kill names slot {slot}, which must be one of 0 to {len(scene.slots) - 1}")
        assert scene.kinds, "instances, or an error that says why there are none"
        interrupts.check()
        if scaled is not None:
            requests = scaled(requests, scene)
        if duration_s is not None:
            requests = requests.repeated(duration_s)
        with followed(wanted=not json) as progress:
            found = study(scene, requests, rivals=not only_ours, progress=progress)
    if interrupts.asked():
        typer.echo("interrupted: ways of filling that were not played to their end are left out", err=True)
    written = _write(found, trace_out, report)
    if json:
        print_json(prefill_json(found))
        return

    from rich.console import Console

    Console(highlight=False).print(prefill_table(found))
    for line in written:
        typer.echo(line)


def _write(found: Study, trace_out: Path | None, report: Path | None) -> list[str]:
    """Write what was asked for; returns a line about each file."""
    from geotrain.files import write_text
    from geotrain.reports.prefill import prefill_html, write_prefill_trace

    lines = []
    if report is not None:
        write_text(report, prefill_html(found))
        lines.append(f"report: {report}  (open it in a browser)")
    if trace_out is not None:
        shown = write_prefill_trace(found, trace_out)
        lines.append(f"trace:  {trace_out}  (open it at ui.perfetto.dev; {shown})")
    return lines
