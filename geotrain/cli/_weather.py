"""What `--spell` takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geotrain.simulation.prefill.weather import Spell

EXAMPLE = "wan x2 from 60 s for 1 min"
_SPELL = re.compile(r"(?:wan|slot (\d{1,6})) x(\d+\.?\d*) from (.+) for (.+)")
_MOST = 100


def parse_spell(text: str) -> Spell:
    """`wan x2 from 60 s for 1 min`, or `slot 3 x1.5 from ...`."""
    from geotrain.errors import InputError
    from geotrain.simulation.prefill.weather import Spell
    from geotrain.units import TIME, parse

    match = _SPELL.fullmatch(" ".join(text.split()))
    if match is None:
        raise InputError(f"--spell is {text!r} and must be like {EXAMPLE!r}, or with 'slot 3' instead of 'wan'")
    slot, factor = match[1], float(match[2])
    if not 0 < factor <= _MOST:
        raise InputError(f"--spell {text!r} has the factor {factor:g}, which must be above 0 and at most {_MOST}")
    try:
        start_s, lasts_s = parse(match[3], TIME), parse(match[4], TIME)
    except ValueError as error:
        raise InputError(f"--spell {text!r} has a time that {error}") from None
    if start_s < 0 or lasts_s < 0:
        raise InputError(f"--spell {text!r} has a time below 0")
    return Spell(on="wan" if slot is None else int(slot), start_s=start_s, end_s=start_s + lasts_s, factor=factor)
