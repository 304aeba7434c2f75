"""Options with a unit: what people write after a flag as a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geotrain.units import Dimension

_DAY_S = 86400


def duration(option: str, text: str) -> float:
    """Seconds, above 0 and at most a day; InputError names the option."""
    from geotrain.errors import InputError
    from geotrain.units import TIME

    seconds = quantity(option, text, TIME)
    if seconds > _DAY_S:
        raise InputError(f"{option} is {text!r} and must be at most a day, {_DAY_S} s")
    return seconds


def quantity(option: str, text: str, dimension: Dimension) -> float:
    """The number in SI, above 0; InputError names the option."""
    from geotrain.errors import InputError
    from geotrain.units import parse

    try:
        number = parse(text, dimension)
    except ValueError as error:
        raise InputError(f"{option} is {text!r} and {error}") from None
    if number <= 0:
        raise InputError(f"{option} is {text!r} and must be above 0")
    return number
