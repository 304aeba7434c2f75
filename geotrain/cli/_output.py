"""What all commands share in how they answer."""

import errno
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from geotrain.errors import InputError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def check_writable(*paths: Path | None) -> None:
    """Refuse before a long run what could not be written after it."""
    from geotrain.files import place_of

    for path in paths:
        if path is None:
            continue
        place_of(path)
        if path.is_dir():
            raise InputError(f"{path}: is a directory, expected a file to write")
        if any(parent.is_file() for parent in path.parents):
            raise InputError(f"{path}: cannot be written: a part of the path is a file")
        nearest = path if path.exists() else next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(nearest, os.W_OK):
            raise InputError(f"{path}: cannot be written: {os.strerror(errno.EACCES)}")


def print_json(answer: Any) -> None:
    """The answer as JSON."""
    typer.echo(json_text(answer))


def json_text(answer: Any) -> str:
    """JSON with the keys in the order given; what is not finite (unlimited, unknown) is null."""
    return json.dumps(_finite(answer), indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
