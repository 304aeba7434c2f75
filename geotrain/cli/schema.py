"""`geotrain schema`: JSON schemas for editors."""

from pathlib import Path
from typing import Annotated

import typer

from geotrain.cli._output import JsonOption, print_json
from geotrain.cli._schemas import write_schemas


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; made if missing.")],
    json: JsonOption = False,
) -> None:
    """Write JSON schemas of the three files, for editors.

    Of cluster, job and plan files. An editor with a YAML language server then completes field names and marks mistakes
    in a file that begins with:

        # yaml-language-server: $schema=plan.schema.json

    Example: geotrain schema .
    """
    written = write_schemas(directory)
    if json:
        print_json({"files": [str(path) for path in written]})
        return
    for path in written:
        typer.echo(f"wrote {path}")
