"""The values of `--vary`: `10,20,30,40ms`, `1,5 Gbit/s,unlimited`, `0..600:100`, `gpt-a,gpt-b`.

Knows how a list is written; whether a value suits its field is for the field to say.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

MOST_VALUES = 10_000
"""More than this is a slip of the keyboard, not a question."""

_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*(\D.*)?")
_RANGE = re.compile(rf"({_NUMBER})\s*(\D*?)\s*\.\.\s*({_NUMBER})\s*([^\d:]*?)\s*(?::\s*({_NUMBER})\s*(\D.*)?)?")
_WORDS = {"true": True, "false": False, "null": None, "none": "none", "unlimited": None}


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value of a list."""

    text: str
    """For people: 10 ms."""
    content: object
    """What would stand in the file."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """What stands between two commas: numbers that may wait for the unit of a later entry, or a word."""

    written: str
    numbers: tuple[Decimal, ...] = ()
    unit: str = ""


def parse_values(text: str) -> tuple[Value, ...]:
    """A list of values; a number without a unit takes that of the next entry that has one. ValueError says why not."""
    values: list[Value] = []
    unit = ""
    entries = [_entry(part.strip()) for part in text.split(",")]
    has_units = any(entry.unit for entry in entries)
    for entry in reversed(entries):
        unit = entry.unit or unit
        if entry.numbers and has_units and not unit:
            raise ValueError(
                f"{entry.written!r} has no unit: write it at the end, as in '10,20,30ms', or on each value"
            )
        values[:0] = _values(entry, unit)
    for text, number in Counter(value.text for value in values).items():
        if number > 1:
            raise ValueError(f"{text!r} is given twice")
    return tuple(values)


def _entry(written: str) -> _Entry:
    if not written:
        raise ValueError("a value is missing: write them like '10,20,30ms' or '0..600:100'")
    if match := _RANGE.fullmatch(written):
        first, first_unit, last, last_unit, step, step_unit = match.groups()
        units = {unit.strip() for unit in (first_unit, last_unit, step_unit) if unit and unit.strip()}
        if len(units) > 1:
            raise ValueError(f"the range {written!r} has several units and must have one")
        numbers = tuple(_steps(Decimal(first), Decimal(last), Decimal(step or 1), written))
        return _Entry(written=written, numbers=numbers, unit=units.pop() if units else "")
    if ".." in written:
        raise ValueError(f"the range {written!r} must be written like '0..600:100' or '10..40:10ms'")
    if match := _QUANTITY.fullmatch(written):
        return _Entry(written=written, numbers=(Decimal(match[1]),), unit=(match[2] or "").strip())
    return _Entry(written=written)


def _steps(first: Decimal, last: Decimal, step: Decimal, written: str) -> Iterator[Decimal]:
    """From first to last, both included where the step meets it; downwards if last is the smaller one."""
    if step <= 0:
        raise ValueError(f"the range {written!r} has the step {step} and must have one above 0")
    number = int(abs(last - first) / step) + 1
    if number > MOST_VALUES:
        raise ValueError(f"the range {written!r} has {number} values and must have at most {MOST_VALUES}")
    return (first + index * (step if last >= first else -step) for index in range(number))


def _values(entry: _Entry, unit: str) -> list[Value]:
    if not entry.numbers:
        return [Value(text=entry.written, content=_WORDS.get(entry.written.casefold(), entry.written))]
    plain = [_plain(number) for number in entry.numbers]
    if not unit:
        return [Value(text=f"{number:.12g}", content=number) for number in plain]
    return [Value(text=f"{number:.12g} {unit}", content=f"{number!r} {unit}") for number in plain]


def _plain(number: Decimal) -> int | float:
    # What is written with a point or an exponent stays a float, so that a field of whole numbers can object.
    exponent = number.as_tuple().exponent
    return int(number) if exponent == 0 else float(number)
