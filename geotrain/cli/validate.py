"""`geotrain validate`: predicted against published or measured step times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geotrain.cli._output import JsonOption, check_writable, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geotrain.validation import Calibration, Measured
    from geotrain.workload import Efficiency


def command(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="CSV of measured runs; left out: published step times.")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="OUT.yaml", help="Fit the efficiency rule to the rows and write it.")
    ] = None,
    efficiency: Annotated[
        Path | None, typer.Option(metavar="RULE.yaml", help="Predict by this rule instead of the built-in one.")
    ] = None,
    chart: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write the chart as SVG.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare predicted step times with published or your own.

    Error of each row and of all, whether the order is right, and the trivial model beside it.

    Columns of FILE: name, layers, hidden, heads, kv_heads, ffn, vocab, sequence, tensor_parallel, pipeline_parallel,
    data_parallel, microbatch, global_batch, gpu, precision, recompute (full, selective, none), interleave,
    gpus_per_node, seconds. May be left out: name, kv_heads, ffn, interleave, gpus_per_node. May be added: head_dim,
    activation (gelu, swiglu), attention (fused, unfused), sequence_parallel, source.

    Examples:

        geotrain validate --chart validation.svg

        geotrain validate runs.csv --calibrate rule.yaml

        geotrain validate other-runs.csv --efficiency rule.yaml
    """
    from geotrain.files import write_text
    from geotrain.reports.validation import validation_json, validation_svg, validation_table
    from geotrain.validation import published_rows, read_rows, read_rule, rule_text, validate
    from geotrain.workload import Efficiency

    check_writable(calibrate, chart, inputs=[file, efficiency])
    rows = published_rows() if file is None else read_rows(file)
    rule = Efficiency() if efficiency is None else read_rule(efficiency)
    fitted = None if calibrate is None else _fit(rows, rule)
    validation = validate(rows, rule)
    kind = "published" if file is None else "measured"
    written = []
    if fitted is not None and calibrate is not None:
        source = "the published step times" if file is None else file.name
        write_text(calibrate, rule_text(fitted, source=source, num_rows=len(rows)))
        written.append(f"rule:  {calibrate}  (put it into a job file)")
    if chart is not None:
        write_text(chart, validation_svg(validation, seconds=kind))
        written.append(f"chart: {chart}")
    if json:
        print_json(validation_json(validation, fitted))
        return

    from rich.console import Console

    Console(highlight=False).print(validation_table(validation, fitted, seconds=kind))
    for line in written:
        typer.echo(line)


def _fit(rows: Sequence[Measured], start: Efficiency | float) -> Calibration:
    from geotrain.errors import InputError
    from geotrain.validation import calibrate
    from geotrain.workload import Efficiency

    if not isinstance(start, Efficiency):
        raise InputError(
            f"--efficiency gives the single figure {start:g} and must give a rule of several for --calibrate to fit"
        )
    return calibrate(rows, start)
