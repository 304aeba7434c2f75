"""What all commands share in how they answer."""

import json
import math
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


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
