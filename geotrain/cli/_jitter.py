"""What `--jitter` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geotrain.simulation import Jitter

EXAMPLE = "compute=5%,wan=10%,step=2%,kind=heavy,samples=500,seed=1"


def parse_jitter(text: str) -> Jitter:
    """The variation that was asked for."""
    from geotrain.simulation import Jitter

    return Jitter.parse(text)
