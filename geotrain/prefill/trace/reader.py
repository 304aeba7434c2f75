"""Reading traces as others publish them; each value that cannot be used is named by line and column in one sentence.

A format is recognized by the first line, not by the file's name. Files may be compressed by gzip, stamps unordered;
blank lines and lines that begin with # are skipped, columns nobody asked for too.
"""

import csv
import gzip
import json
import math
import reprlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from geotrain.errors import InputError
from geotrain.files import read_bytes, reading
from geotrain.prefill.request import BLOCK_TOKENS, Request
from geotrain.prefill.trace.trace import Trace

_MOST_TOKENS = 10**9
_MOST_PRIORITY = 9
_GZIP = b"\x1f\x8b"
# Near the stamps of published traces, so that a float of seconds keeps their digits.
_EPOCH = datetime(2023, 1, 1, tzinfo=UTC)

_Rows = Iterator[tuple[int, list[Any]]]
"""Line numbers and cells; a cell that is None or "" is not there."""
_NEEDED = object()


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Where a field of a Request comes from. The conversion's ValueError ends the sentence "x is 1 and ..."."""

    field: str
    convert: Callable[[Any], Any]
    default: object = _NEEDED


@dataclass(frozen=True, kw_only=True)
class _Format:
    name: str
    columns: Mapping[str, _Column]

    @property
    def needed(self) -> list[str]:
        return [name for name, column in self.columns.items() if column.default is _NEEDED]


def read_trace(path: Path) -> Trace:
    """The requests of a file; InputError names the file, line, column, value and limit of what is wrong."""
    lines = _text(path).removeprefix("\ufeff").splitlines()
    try:
        requests = _requests(_columns(lines))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    return Trace(name=path.name.removesuffix(".gz").rsplit(".", 1)[0], requests=requests)


def _requests(columns: dict[str, list[Any]]) -> tuple[Request, ...]:
    """In order of arrival, with prefix blocks numbered from 0."""
    start_s = min(columns["arrival_s"])
    columns["arrival_s"] = [arrival_s - start_s for arrival_s in columns["arrival_s"]]
    numbers: dict[object, int] = {}
    if "blocks" in columns:
        columns["blocks"] = [
            tuple(numbers.setdefault(block, len(numbers)) for block in blocks[: math.ceil(tokens / BLOCK_TOKENS)])
            for blocks, tokens in zip(columns["blocks"], columns["input_tokens"], strict=True)
        ]
    ordered = sorted(zip(*columns.values(), strict=True), key=itemgetter(list(columns).index("arrival_s")))
    return tuple(Request(id=i, **dict(zip(columns, row, strict=True))) for i, row in enumerate(ordered))


def _columns(lines: list[str]) -> dict[str, list[Any]]:
    """Values by field of a Request. Columns, not rows: a million rows would keep the garbage collector busy."""
    form, rows = _table(lines)
    numbers: list[int] = []
    cells: dict[str, list[Any]] = {name: [] for name in form.columns}
    for number, row in rows:
        numbers.append(number)
        for column, cell in zip(cells.values(), row, strict=True):
            column.append(cell)
    if not numbers:
        raise ValueError("has no requests and must have at least one")
    return {column.field: _values(name, column, cells[name], numbers) for name, column in form.columns.items()}


def _values(name: str, column: _Column, cells: list[Any], numbers: list[int]) -> list[Any]:
    values = []
    for cell, number in zip(cells, numbers, strict=True):
        if cell is None or cell == "":
            if column.default is _NEEDED:
                raise ValueError(f"line {number} has no {name}")
            values.append(column.default)
            continue
        try:
            values.append(column.convert(cell))
        except ValueError as error:
            raise ValueError(f"line {number}: {name} is {reprlib.repr(cell)} and {error}") from None
    return values


def _text(path: Path) -> str:
    with reading(path):
        content = read_bytes(path)
        try:
            return (gzip.decompress(content) if content.startswith(_GZIP) else content).decode()
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise InputError(f"{path}: begins like a gzip file and is damaged or cut off") from None


def _table(lines: list[str]) -> tuple[_Format, _Rows]:
    """The format, and line number and cells of each line, the cells in the order of the format's columns."""
    first = next(((number, line) for number, line in enumerate(lines, start=1) if _says_something(line)), (0, ""))
    if first[1].lstrip().startswith("{"):
        form = _json_format(*first)
        return form, _json_rows(lines, form)
    rows = _csv_rows(lines)
    number, header = next(rows, (0, []))
    if not header:
        raise ValueError("is empty and must have at least one request")
    form, places = _recognized(number, header)
    return form, _placed(rows, places, len(header))


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _json_format(number: int, line: str) -> _Format:
    names = _json_object(number, line).keys()
    return max(_JSON, key=lambda form: len(names & form.columns.keys()))


def _json_rows(lines: list[str], form: _Format) -> _Rows:
    for number, line in enumerate(lines, start=1):
        if not _says_something(line):
            continue
        row = _json_object(number, line)
        if not row.keys() & form.needed:
            raise _unknown(number, line)
        yield number, [row.get(name) for name in form.columns]


def _json_object(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is {reprlib.repr(row)} and must be a JSON object")
    return row


def _csv_rows(lines: list[str]) -> _Rows:
    reader = csv.reader(lines, strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            if any(cells) and not cells[0].startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} is not CSV: {error}") from None


def _placed(rows: _Rows, places: list[int], width: int) -> _Rows:
    for number, cells in rows:
        if len(cells) > width:
            raise ValueError(f"line {number} has {len(cells)} cells and must have at most {width}, like the first line")
        cells += [""] * (width + 1 - len(cells))
        yield number, [cells[place] for place in places]


def _recognized(number: int, header: list[str]) -> tuple[_Format, list[int]]:
    """The format that these columns are of, and where its columns are: one after the last if nowhere."""
    written = [_ALSO_CALLED.get(cell.strip().lower(), cell.strip().lower()) for cell in header]
    form = max(_CSV, key=lambda form: sum(name.lower() in written for name in form.columns))
    missing = [name for name in form.needed if name.lower() not in written]
    if missing == form.needed:
        raise _unknown(number, ",".join(header))
    if missing:
        raise ValueError(f"line {number} has no column {missing[0]}, which {form.name} must have")
    twice = next((name for name in form.columns if written.count(name.lower()) > 1), None)
    if twice:
        raise ValueError(f"line {number} has the column {twice} twice")
    return form, [[*written, name.lower()].index(name.lower()) for name in form.columns]


def _unknown(number: int, line: str) -> ValueError:
    known = "; ".join(f"{form.name} with {', '.join(form.columns)}" for form in (*_CSV, *_JSON))
    return ValueError(f"line {number} is {reprlib.repr(line)} and must be of a known format: {known}")


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("must be a moment like 2023-11-16 18:15:46.6805900") from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH).total_seconds()


def _seconds(value: object) -> float:
    number = _number(value)
    if not 0 <= number < math.inf:
        raise ValueError("must be a number of at least 0")
    return number


def _milliseconds(value: object) -> float:
    return _seconds(value) / 1000


def _whole(least: int, most: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        number = _number(value)
        if not (least <= number <= most and number.is_integer()):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(number)

    return convert


def _number(value: object) -> float:
    """What the value says; nan if that is no number."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _hashes(value: object) -> list[int | str]:
    if not isinstance(value, list) or any(type(entry) not in (int, str) for entry in value):
        raise ValueError("must be a list of whole numbers")
    return value


_INPUT = _Column(field="input_tokens", convert=_whole(1, _MOST_TOKENS))
_OUTPUT = _Column(field="output_tokens", convert=_whole(0, _MOST_TOKENS), default=0)
_CSV = (
    _Format(
        name="Azure CSV",
        columns={
            "TIMESTAMP": _Column(field="arrival_s", convert=_moment),
            "ContextTokens": _INPUT,
            "GeneratedTokens": _OUTPUT,
        },
    ),
    _Format(
        name="plain CSV",
        columns={
            "arrival_s": _Column(field="arrival_s", convert=_seconds),
            "input_tokens": _INPUT,
            "output_tokens": _OUTPUT,
            "model": _Column(field="model", convert=str.strip, default=""),
            "tenant": _Column(field="tenant", convert=str.strip, default=""),
            "priority": _Column(field="priority", convert=_whole(0, _MOST_PRIORITY), default=0),
        },
    ),
)
_JSON = (
    _Format(
        name="Mooncake JSON lines",
        columns={
            "timestamp": _Column(field="arrival_s", convert=_milliseconds),
            "input_length": _INPUT,
            "output_length": _OUTPUT,
            "hash_ids": _Column(field="blocks", convert=_hashes, default=()),
        },
    ),
)
"""A format is known by its columns: that of the most columns that the first line has."""
_ALSO_CALLED = {"timestamp_s": "arrival_s"}
