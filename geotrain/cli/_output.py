"""What all commands share in how they answer."""

import errno
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from geotrain.errors import InputError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def check_writable(*paths: Path | None, inputs: Iterable[Path | None]) -> None:
    """Refuse before a long run what could not be written after it, or would take the place of what the command reads.

    `inputs` are the files that it reads, by whatever name; those that a plan among them names count too.
    """
    from geotrain.files import place_of

    outputs = [path for path in paths if path is not None]
    read = [path for given in inputs if given is not None for path in (given, *_named_in(given))] if outputs else []
    for number, path in enumerate(outputs):
        place_of(path)
        if source := next((source for source in read if _is_same(source, path)), None):
            raise InputError(f"{path}: would be overwritten, and is read as {source}: name another file to write")
        if any(_is_same(other, path) for other in outputs[:number]):
            raise InputError(f"{path}: would be written twice: name a file for each")
        if path.is_dir():
            raise InputError(f"{path}: is a directory, expected a file to write")
        if any(parent.is_file() for parent in path.parents):
            raise InputError(f"{path}: cannot be written: a part of the path is a file")
        nearest = path if path.exists() else next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(nearest, os.W_OK):
            raise InputError(f"{path}: cannot be written: {os.strerror(errno.EACCES)}")


def _named_in(path: Path) -> list[Path]:
    """Files that a plan names; none for what is no plan, about which the command itself complains."""
    if path.suffix not in (".yaml", ".yml"):
        return []
    from geotrain.files import read_yaml

    try:
        content = read_yaml(path)
    except InputError:
        return []
    names = [content.get(field) for field in ("cluster", "job")] if isinstance(content, dict) else []
    return [path.parent / name for name in names if isinstance(name, str)]


def _is_same(one: Path, other: Path) -> bool:
    """Whether the names lead to one file, which need not be there yet; a device may be written by several."""
    try:
        if one.exists() and other.exists():
            return one.is_file() and one.samefile(other)
        return one.resolve() == other.resolve()
    except (OSError, RuntimeError):
        return False


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
