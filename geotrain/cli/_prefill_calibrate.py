"""`geotrain prefill calibrate`: how long prefill takes, fitted to a table or measured here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geotrain.cli._output import JsonOption, check_writable, print_json

if TYPE_CHECKING:
    import torch

    from geotrain.prefill.measurements import Measurement

_LONGEST, _REPEAT = 8192, 5


def calibrate(
    table: Annotated[
        Path | None, typer.Argument(metavar="TABLE", help="CSV of measured prefill times; left out: published ones.")
    ] = None,
    measure: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Measure this Hugging Face model here instead.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this model; with --measure, its name (else DIR's).")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this GPU; with --measure, its name in the catalog.")
    ] = None,
    tensor_parallel: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only slots of N GPUs; --measure is of one.")
    ] = None,
    longest: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help=f"With --measure: the longest prompt; {_LONGEST}, or what DIR can."),
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(metavar="N", min=1, help=f"With --measure: times each, {_REPEAT} if not given.")
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="With --measure: where; the GPU, if there is one.")
    ] = None,
    table_out: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="With --measure: write what was measured.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="Write the fits, for --times of `prefill simulate` and `serve`."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fit prefill time to measurements and say how far off it is.

    The form is c + g L + b x + a (2 L x + x^2) for x new tokens after L cached ones: one fit for each model, GPU and
    tensor_parallel. Errors are those of points held out, each predicted by a fit without it; the same errors give the
    margin that is kept where a prefill must not take longer than promised.

    Columns of TABLE: model, gpu, tensor_parallel, new_tokens, cached_tokens, seconds (or milliseconds), source. May be
    left out: cached_tokens (0) and source. Repeated measurements are rows of their own. Names are those of `geotrain
    catalog`, or your own.

    Examples:

        geotrain prefill calibrate

        geotrain prefill calibrate times.csv --gpu h100 --write prefill.yaml

        geotrain prefill calibrate --measure Llama-3.1-8B --gpu h100 --table-out times.csv --write prefill.yaml
    """
    from geotrain.errors import InputError
    from geotrain.prefill.calibration import Calibrations
    from geotrain.prefill.calibration import calibrate as fit
    from geotrain.prefill.measurements import published, read_table, write_table
    from geotrain.reports.prefill import calibration_json, calibration_table

    check_writable(table_out, write, inputs=[table])
    rows: list[Measurement]
    if measure is not None:
        if table is not None:
            raise InputError(f"give the table {table} or --measure {measure}, not both")
        if tensor_parallel not in (None, 1):
            raise InputError(
                f"--tensor-parallel is {tensor_parallel} and must be 1 with --measure: one device is timed"
            )
        rows = _measured(measure, model, gpu, longest, repeat, device, show=not json)
    else:
        only = {"--longest": longest, "--repeat": repeat, "--device": device, "--table-out": table_out}
        if stray := next((option for option, value in only.items() if value is not None), None):
            raise InputError(f"{stray} goes with --measure DIR, which is not given")
        rows = list(published()) if table is None else read_table(table)
        rows = _chosen(rows, model, gpu, tensor_parallel)
    found = fit(rows)
    written = {}
    if table_out is not None:
        write_table(table_out, rows)
        written["table"] = str(table_out)
    if write is not None:
        Calibrations(calibrations=tuple(one.calibration for one in found)).save(write)
        written["fits"] = str(write)
    if json:
        print_json(calibration_json(found) | {"written": written})
        return

    from rich.console import Console

    Console(highlight=False).print(calibration_table(found))
    for what, path in written.items():
        typer.echo(f"{what}: {path}")
    for note in _notes(rows):
        typer.echo(f"note: {note}", err=True)


def _chosen(rows: list[Measurement], model: str | None, gpu: str | None, width: int | None) -> list[Measurement]:
    """The rows that were asked for; InputError says what there is."""
    from geotrain.errors import InputError
    from geotrain.hints import hint

    for option, attribute, wanted in (
        ("--model", "model", model and model.lower()),
        ("--gpu", "gpu", gpu and gpu.lower()),
        ("--tensor-parallel", "tensor_parallel", width),
    ):
        if wanted is not None:
            there = sorted({str(getattr(row, attribute)) for row in rows})
            rows = [row for row in rows if getattr(row, attribute) == wanted]
            if not rows:
                raise InputError(f"{option} is {wanted!r} and the rows have none of it: {hint(str(wanted), there)}")
    return rows


def _measured(
    directory: Path,
    model: str | None,
    gpu: str | None,
    longest: int | None,
    repeat: int | None,
    device: str | None,
    *,
    show: bool,
) -> list[Measurement]:
    from geotrain.errors import InputError

    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError:
        raise InputError("--measure needs torch and safetensors: pip install 'geotrain[train]'") from None
    from rich.console import Console
    from rich.progress import track

    from geotrain.prefill.measurements import Measurement
    from geotrain.training.prefill_bench import PrefillBench, grid, load

    where = _device(device)
    part = load(directory, where)
    most = part.config.max_position_embeddings
    if longest is not None and longest > most:
        raise InputError(f"--longest is {longest} and must be at most {most}, max_position_embeddings of {directory}")
    longest, repeat = longest or min(_LONGEST, most), repeat or _REPEAT
    points, console = grid(longest), Console(stderr=True)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    timed = track(
        PrefillBench(part, longest).measure(points, repeat),
        description="measuring",
        total=len(points) * repeat,
        console=console,
        transient=True,
        disable=not (show and console.is_terminal),
    )
    return [
        Measurement(
            model=(model or directory.resolve().name).lower(),
            gpu=(gpu or name).lower(),
            tensor_parallel=1,
            new_tokens=new,
            cached_tokens=cached,
            seconds=seconds,
            source=f"measured on {name}, torch {torch.__version__}",
        )
        for (new, cached), seconds in timed
    ]


def _device(choice: str | None) -> torch.device:
    import torch

    from geotrain.errors import InputError
    from geotrain.training.process import Place

    if choice == "cuda" and not torch.cuda.is_available():
        raise InputError("--device is cuda and must be cpu: torch sees no GPU here")
    if choice == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    return Place.of().device()


def _notes(rows: list[Measurement]) -> list[str]:
    """Names that look like others of the catalog: a fit is found by its names."""
    from geotrain.cluster import GPUS
    from geotrain.hints import hint, nearest
    from geotrain.workload import MODELS

    used = [("GPU", row.gpu, list(GPUS)) for row in rows] + [("model", row.model, list(MODELS)) for row in rows]
    return [
        f"the {what} {name!r} is not in the catalog: {hint(name, known)}"
        for what, name, known in {entry[:2]: entry for entry in used}.values()
        if name not in known and nearest(name, known)
    ]
