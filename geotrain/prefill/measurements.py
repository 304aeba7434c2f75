"""Tables of measured prefill times as CSV; what cannot be used is named by line and column in one sentence.

Columns: model, gpu, tensor_parallel, new_tokens, cached_tokens (0 if left out), seconds or milliseconds, source (may
be left out). Other columns, blank lines and lines that begin with # are skipped. A repeated measurement is a row more.
"""

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from geotrain.complaints import complaint
from geotrain.errors import InputError
from geotrain.files import csv_lines, read_text, writing
from geotrain.hints import nearest
from geotrain.prefill.predictor import Point
from geotrain.units import TIME, parse

Setting = tuple[str, str, int]
"""Model, GPU and tensor_parallel: what has one prefill time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One prefill that somebody timed."""

    model: str
    """Names are in lower case."""
    gpu: str
    tensor_parallel: int
    new_tokens: int
    cached_tokens: int
    seconds: float
    source: str

    @property
    def setting(self) -> Setting:
        """What ran on what."""
        return self.model, self.gpu, self.tensor_parallel

    @property
    def point(self) -> Point:
        """What it had to do."""
        return self.new_tokens, self.cached_tokens


@cache
def published() -> tuple[Measurement, ...]:
    """The prefill times that come with the package."""
    path = resources.files("geotrain.prefill") / "published.csv"
    return tuple(parse_table(path.read_text(encoding="utf-8"), source="published.csv"))


def read_table(path: Path) -> list[Measurement]:
    """A person's table; InputError names the file, line and column of what is wrong."""
    return parse_table(read_text(path), source=str(path))


def write_table(path: Path, rows: Iterable[Measurement]) -> None:
    """A table that `read_table` gives back."""
    with writing(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(field.name for field in fields(Measurement))
        table.writerows(map(astuple, rows))


def parse_table(text: str, *, source: str) -> list[Measurement]:
    """The rows of a table; one that does not name its source has the table's."""
    lines = csv_lines(text, source=source)
    _, header = next(lines, (0, []))
    columns = [cell.strip().lower() for cell in header]
    kind = _kind(columns, source)
    rows = []
    for number, cells in lines:
        if len(cells) > len(columns):
            raise InputError(
                f"{source}: line {number} has {len(cells)} cells and must have {len(columns)}, like the first line"
            )
        given = {column: cell.strip() for column, cell in zip(columns, cells, strict=False) if cell.strip()}
        try:
            rows.append(kind.model_validate({"source": source} | given).measurement())
        except ValidationError as error:
            raise InputError(f"{source}: line {number}: {complaint(error, kind)}") from None
    if not rows:
        raise InputError(f"{source}: has no rows below its first line and must have at least one")
    return rows


Name = Annotated[str, StringConstraints(to_lower=True)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]


class _Row(BaseModel, ABC):
    """The cells of a line."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: Name
    gpu: Name
    tensor_parallel: Count
    new_tokens: Count
    cached_tokens: int = Field(0, ge=0, le=1_000_000_000)
    source: str

    @abstractmethod
    def measurement(self) -> Measurement:
        """In SI."""


class _InSeconds(_Row):
    seconds: float = Field(gt=0, le=1e9)

    def measurement(self) -> Measurement:
        return Measurement(**self.model_dump())


class _InMilliseconds(_Row):
    milliseconds: float = Field(gt=0, le=1e12)

    def measurement(self) -> Measurement:
        seconds = parse(f"{self.milliseconds} ms", TIME)
        return Measurement(**self.model_dump(exclude={"milliseconds"}), seconds=seconds)


def _kind(columns: list[str], source: str) -> type[_Row]:
    """How the lines are to be read; InputError where the first line lacks a column."""
    if not columns:
        raise InputError(f"{source}: is empty and must have a first line of column names")
    if twice := next((column for column in columns if column and columns.count(column) > 1), None):
        raise InputError(f"{source}: the first line has the column {twice!r} twice")
    if {"seconds", "milliseconds"} <= set(columns):
        raise InputError(f"{source}: the first line has the columns 'seconds' and 'milliseconds': give one of them")
    kind = _InMilliseconds if "milliseconds" in columns else _InSeconds
    known = kind.model_fields
    missing = [name for name, field in known.items() if field.is_required() and name not in (*columns, "source")]
    if missing:
        near = nearest(missing[0], [column for column in columns if column not in known])
        meant = f"; did you mean it by {near[0]!r}?" if near else ""
        raise InputError(f"{source}: the first line has no column {missing[0]!r}{meant}")
    return kind
