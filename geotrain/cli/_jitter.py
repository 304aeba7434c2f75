"""What `--jitter` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geotrain.simulation import Jitter

EXAMPLE = "compute=5%,wan=10%,step=2%,kind=heavy,samples=500,seed=1"


def parse_jitter(text: str) -> Jitter:
    """`5%` for compute and WAN alike, or a list of key=value."""
    from geotrain.errors import InputError
    from geotrain.simulation import DISTRIBUTIONS, Jitter

    given = {"compute": text, "wan": text} if "=" not in text else {}
    for part in text.split(",") if "=" in text else ():
        key, _, value = part.partition("=")
        given[key.strip()] = value.strip()
    unknown = given.keys() - {"compute", "wan", "step", "kind", "samples", "seed"}
    if unknown:
        raise InputError(f"--jitter has the unknown part {min(unknown)!r}; write it like {EXAMPLE!r}")
    kind = given.get("kind", "lognormal")
    chosen = next((name for name in DISTRIBUTIONS if name == kind), None)
    if chosen is None:
        raise InputError(f"--jitter kind is {kind!r} and must be one of {', '.join(DISTRIBUTIONS)}")
    return Jitter(
        compute=_share("compute", given.get("compute", "0")),
        wan=_share("wan", given.get("wan", "0")),
        step=_share("step", given.get("step", "0")),
        distribution=chosen,
        samples=_whole("samples", given.get("samples", "200"), least=10),
        seed=_whole("seed", given.get("seed", "0"), least=0),
    )


def _share(key: str, text: str) -> float:
    from geotrain.errors import InputError

    try:
        share = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError(f"--jitter {key} is {text!r} and must be a share such as '5%' or '0.05'") from None
    if not 0 <= share <= 1:
        raise InputError(f"--jitter {key} is {text!r} and must be between 0 and 100%")
    return share


def _whole(key: str, text: str, *, least: int) -> int:
    from geotrain.errors import InputError

    if not text.isdecimal() or int(text) < least or int(text) > 1_000_000:
        raise InputError(f"--jitter {key} is {text!r} and must be a whole number from {least} to 1000000")
    return int(text)
