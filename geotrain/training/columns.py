"""Tables of spans in JSON files: a list per column, row i of all of them is one span."""

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, Strict, model_validator

from geotrain.errors import InputError
from geotrain.files import Document

Count = Annotated[int, Strict(), Field(ge=0, lt=1 << 28)]
"""A number of a stage, microbatch, pipeline, rank or step."""
Clock = Annotated[float, Strict(), Field(gt=-1e12, lt=1e12)]
"""Seconds on some clock."""
Flag = Annotated[bool, Strict()]
Letter = Literal["F", "R", "B", "I", "W"]


class Table(Document):
    """Columns of one length."""

    @model_validator(mode="after")
    def _even(self) -> Self:
        lengths = {name: len(column) for name, column in self}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"columns must have one length, but have {said}")
        return self


def read_json(text: str, *, source: Path) -> object:
    """The content of a JSON text; InputError says where it breaks off."""
    try:
        content: object = json.loads(text)
    except json.JSONDecodeError as error:
        where = "ends too early" if error.pos >= len(text.rstrip()) else f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{source}: not valid JSON: {where}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not valid JSON: {error}") from None
    return content
