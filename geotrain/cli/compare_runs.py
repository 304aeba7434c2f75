"""`geotrain compare-runs`: what was predicted against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain.cli._output import JsonOption, check_writable, print_json

if TYPE_CHECKING:
    from geotrain.training.recording import Recording


def command(
    simulated: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan file, simulated now; or what `simulate --timeline` saved.")
    ],
    measured: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a run (`geotrain train --out`), or its timeline.json.")
    ],
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw both steps, one above the other.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write both steps for ui.perfetto.dev.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare a simulated step with the measured steps of a run.

    Step time and its error, GPU utilization, the mean time of every kind of action, and for every link
    the mean time and rate of a transfer. Of several measured steps the first does not count, and the median is the
    step time. Picture and trace show the step that is closest to it. A run on another device than the plan's GPU is
    compared with a warning, unless the job has measured times.

    Examples:

        geotrain compare-runs plan.yaml run

        geotrain compare-runs plan.yaml run --picture both.svg --trace both.json

        geotrain simulate plan.yaml --timeline step.json

        geotrain compare-runs step.json run --json | jq .error
    """
    from geotrain.files import write_text, writing
    from geotrain.reports.runs import RunComparison, run_comparison_json, run_comparison_table, runs_svg
    from geotrain.reports.step import perfetto_traces

    check_writable(picture, trace, inputs=[simulated, measured])
    comparison = RunComparison(simulated=_simulated(simulated), measured=_recorded(measured))
    if picture is not None:
        write_text(picture, runs_svg(comparison))
    if trace is not None:
        steps = {"simulated": comparison.simulated.typical, "measured": comparison.measured.typical}
        with writing(trace) as file:
            file.writelines(perfetto_traces(steps))
    if json:
        print_json(run_comparison_json(comparison))
        return

    from rich.console import Console

    Console(highlight=False).print(run_comparison_table(comparison))
    if picture is not None:
        typer.echo(f"picture: {picture}")
    if trace is not None:
        typer.echo(f"trace:   {trace}  (open it at ui.perfetto.dev)")


def _simulated(path: Path) -> Recording:
    """What was saved, or the plan simulated."""
    from geotrain.cli._plan import opened
    from geotrain.simulation import rehearse, run
    from geotrain.training.recording import Recording, is_recording

    if path.is_dir() or is_recording(path):
        return _recorded(path)
    with opened(path) as plan:
        return Recording.of(*rehearse(*run(plan)))


def _recorded(path: Path) -> Recording:
    """The steps of a run, gathered now if nobody has."""
    from geotrain.errors import InputError
    from geotrain.training.measured import TIMELINE, gather
    from geotrain.training.recording import Recording, is_recording

    if path.is_dir():
        saved = path / TIMELINE
        return Recording.load(saved) if saved.exists() else gather(path)
    if not is_recording(path):
        raise InputError(f"{path}: is not a saved timeline, and must be one or the directory of a run")
    return Recording.load(path)
