"""`geotrain init`: example files to start from."""

from pathlib import Path
from typing import Annotated

import typer

from geotrain.cli._example import FILES, FIRST
from geotrain.cli._output import JsonOption, print_json
from geotrain.cli._schemas import write_schemas


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; made if missing.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a cluster, a job and a plan to start from.

    With comments, and with schemas for editors.
    Three data centers with A100 GPUs, joined by a WAN of 40 ms and 5 Gbit/s per pair of nodes.

    Example: geotrain init my-plan && geotrain simulate my-plan/plan.yaml
    """
    from geotrain.errors import InputError
    from geotrain.files import read_text, write_text

    written = [directory / name for name in FILES]
    for path in written:
        if path.exists() and not force:
            raise InputError(f"{path}: exists already; --force replaces it")
    for path in written:
        write_text(path, read_text(FIRST / path.name))
    written += write_schemas(directory)

    next_step = f"geotrain simulate {directory / 'plan.yaml'}"
    if json:
        print_json({"files": [str(path) for path in written], "next": next_step})
        return
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"\nnext: {next_step}")
