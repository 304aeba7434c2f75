"""All unit conversion: what people write ("40 ms", "5 Gbit/s") to SI numbers and back.

SI inside: seconds, bytes, bytes per second, FLOP/s. No other module multiplies by 8, 1e9 or 2**30.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from geotrain.hints import nearest


@dataclass(frozen=True)
class Dimension:
    """A kind of quantity: its name, its units as factors to SI, and an example to show."""

    name: str
    units: dict[str, float]
    example: str


_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

_DATA = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()} | {
    f"{prefix}{bit}": factor / 8 for prefix, factor in _DECIMAL.items() for bit in ("bit", "b")
}

TIME = Dimension(
    "time",
    {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "40 ms",
)
SIZE = Dimension("size", _DATA, "80 GiB")
RATE = Dimension(
    "rate",
    {f"{unit}/s": factor for unit, factor in _DATA.items()}
    | {f"{prefix}bps": factor / 8 for prefix, factor in _DECIMAL.items()},
    "5 Gbit/s",
)
COUNT = Dimension("number", {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}, "300B")
COMPUTE = Dimension("compute rate", {f"{prefix}FLOP/s": f for prefix, f in _DECIMAL.items()}, "312 TFLOP/s")

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*")


_MOST, _LEAST = 1e30, 1e-30


def parse(value: object, dimension: Dimension) -> float:
    """The SI number of `value`; a plain number is SI already. Raises ValueError with a hint."""
    if isinstance(value, str):
        return _sane(_parse_text(value, dimension))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _sane(value)
    raise ValueError(_not_a(dimension))


def _parse_text(text: str, dimension: Dimension) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(_not_a(dimension))
    number, unit = match.group(1), match.group(2)
    if unit is None:
        return float(number)
    # People type units in any case; only where that could be bits or bytes ("gb/s") must they be exact.
    factor = dimension.units.get(unit)
    if factor is None:
        folded = {f for name, f in dimension.units.items() if name.casefold() == unit.casefold()}
        if len(folded) != 1:
            raise ValueError(_unknown_unit(number, unit, dimension))
        factor = folded.pop()
    return _scale(float(number), factor)


def _scale(number: float, factor: float) -> float:
    # Dividing by an exact power of ten keeps "40 ms" equal to 0.04 to the last bit; multiplying by 1e-3 does not.
    inverse = round(1 / factor) if factor < 1 else 0
    return number / inverse if inverse and 1 / inverse == factor else number * factor


def _sane(number: int | float) -> float:
    """What can be multiplied and divided a few times and is still a number."""
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError("must be a finite number")
    if abs(number) > _MOST:
        raise ValueError(f"must be at most {_MOST:g}")
    if 0 < abs(number) < _LEAST:
        raise ValueError(f"must be at least {_LEAST:g}, or 0")
    return float(number)


def _not_a(dimension: Dimension) -> str:
    return f"must be a {dimension.name} such as {dimension.example!r}"


def _unknown_unit(number: str, unit: str, dimension: Dimension) -> str:
    near = nearest(unit, dimension.units, cutoff=0.5)
    if near:
        likely = " or ".join(f'"{number} {name}"' for name in near[:3])
        return f"has the unknown unit {unit!r}: did you mean {likely}?"
    return f"has the unknown unit {unit!r}: a {dimension.name} is written like {dimension.example!r}"


def _quantity(dimension: Dimension, *, above_zero: bool) -> tuple[BeforeValidator, WithJsonSchema]:
    # The limit is checked here and not by pydantic, which would show the SI number instead of what was written.
    def validate(value: object) -> float:
        number = parse(value, dimension)
        if number < 0 or (above_zero and number == 0):
            raise ValueError("must be above 0" if above_zero else "must be at least 0")
        return number

    limit = {"exclusiveMinimum" if above_zero else "minimum": 0}
    schema = {"anyOf": [{"type": "number", **limit}, {"type": "string"}], "examples": [dimension.example]}
    return BeforeValidator(validate), WithJsonSchema(schema)


def _size_or_share(value: object) -> float | str:
    if not (isinstance(value, str) and value.rstrip().endswith("%")):
        number = parse(value, SIZE)
        if number < 0:
            raise ValueError("must be at least 0")
        return number
    try:
        percent = float(value.rstrip().removesuffix("%"))
    except ValueError:
        raise ValueError("must be a size such as '4 GiB' or a share such as '8%'") from None
    if not 0 <= percent < 100:
        raise ValueError("must be at least 0% and below 100%")
    return f"{percent:g}%"


_SIZE_OR_SHARE_SCHEMA = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}], "examples": ["4 GiB", "8%"]}
SizeOrShare = Annotated[float | str, BeforeValidator(_size_or_share), WithJsonSchema(_SIZE_OR_SHARE_SCHEMA)]
"""Bytes, or a share of something as text: "8%"."""


def size_of(size: float | str, whole_bytes: float) -> float:
    """The bytes that a SizeOrShare means, where the whole is so large."""
    return size if isinstance(size, float) else float(size.removesuffix("%")) / 100 * whole_bytes


Seconds = Annotated[float, *_quantity(TIME, above_zero=False)]
Bytes = Annotated[float, *_quantity(SIZE, above_zero=False)]
PositiveBytes = Annotated[float, *_quantity(SIZE, above_zero=True)]
PositiveRate = Annotated[float, *_quantity(RATE, above_zero=True)]
PositiveFlops = Annotated[float, *_quantity(COMPUTE, above_zero=True)]


def _format(number: float, steps: list[tuple[float, str]]) -> str:
    for factor, unit in steps:
        if abs(number) >= factor:
            return f"{number / factor:.4g} {unit}"
    factor, unit = steps[-1]
    return f"{number / factor:.4g} {unit}"


def format_seconds(seconds: float) -> str:
    """12.5 ms, 65.2 s, 20.7 min, 2.1 h, 98.2 d: a minute, hour or day is a unit from two of them on."""
    large = [(86400, "d"), (3600, "h"), (60, "min")]
    for factor, unit in large:
        if abs(seconds) >= 2 * factor:
            return f"{seconds / factor:.4g} {unit}"
    return _format(seconds, [(1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])


def format_bytes(size_bytes: float) -> str:
    """Memory as people buy it: 80 GiB."""
    return _format(size_bytes, [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1, "B")])


def format_traffic(size_bytes: float) -> str:
    """Bytes on a wire, in decimal units: 33.55 MB."""
    return _format(size_bytes, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


def format_rate(bytes_per_s: float) -> str:
    """5 Gbit/s, or 'unlimited'."""
    if math.isinf(bytes_per_s):
        return "unlimited"
    return _format(bytes_per_s * 8, [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")])


def format_flops(flops: float) -> str:
    """1.92 TFLOP; append '/s' for a rate."""
    return _format(
        flops, [(1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1, "FLOP")]
    )


def format_count(number: float) -> str:
    """109k, 7.25B; 10 is 10."""
    for factor, letter in [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")]:
        if number >= factor:
            return f"{number / (1e3 if letter == 'k' else factor):.3g}{letter}"
    return f"{number:.4g}"


def plural(number: int | float, word: str) -> str:
    """1 stage, 2 stages, 1.5 microbatches."""
    many = "" if number == 1 else "es" if word.endswith(("s", "ch")) else "s"
    shown = str(number) if isinstance(number, int) else f"{number:.16g}"
    return f"{shown} {word}{many}"


def gigabytes(size_bytes: float) -> float:
    """Bytes in the unit that clouds bill egress in."""
    return size_bytes / 1e9


def hours(seconds: float) -> float:
    """Seconds in the unit that clouds bill GPUs in."""
    return seconds / 3600


def days(seconds: float) -> float:
    """Seconds in the unit that trainings are planned in."""
    return seconds / 86400
