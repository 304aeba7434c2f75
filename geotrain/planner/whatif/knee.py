"""The least WAN bandwidth per pair that still hides the transfers."""

import math
from collections.abc import Sequence

from geotrain.cluster import Cluster
from geotrain.planner.ask import Ask
from geotrain.planner.whatif.exploration import Story
from geotrain.planner.whatif.grid import Point, Setting
from geotrain.planner.whatif.outcome import Found, Outcome
from geotrain.planner.whatif.variants import with_pair_cap
from geotrain.units import RATE, format_rate, parse
from geotrain.workload import Job

HIDDEN = 0.02
"""Transfers are hidden while tokens/s are within this share of what an unlimited WAN gives."""
_DECADES = tuple(
    parse(text, RATE) for text in ("1 Tbit/s", "100 Gbit/s", "10 Gbit/s", "1 Gbit/s", "100 Mbit/s", "10 Mbit/s")
)
_ROUNDS = 3
"""Of three points each, whatever the number of workers; a decade comes down to less than 4%."""


def knee(cluster: Cluster, job: Job, ask: Ask) -> Story:
    """Which decade, then which quarter of it, and so on, in steps of equal ratio."""
    (unlimited, *slower) = yield [_capped(cluster, rate, job, ask) for rate in (math.inf, *_DECADES)]
    if not isinstance(unlimited, Found):
        return "Nothing fits, however fast the WAN is."
    if unlimited.across == "none":
        return f"There is no knee: even over an unlimited WAN the best plan stays in {min(unlimited.datacenters)}."
    enough = unlimited.tokens_per_s * (1 - HIDDEN)
    high, low = _crossing(math.inf, _DECADES, slower, enough)
    if low is None:
        return f"There is no knee: {format_rate(high)} per pair still gives {1 - HIDDEN:.0%} of what unlimited gives."
    if math.isinf(high):
        return f"The knee is above {format_rate(low)} per pair."
    for _ in range(_ROUNDS):
        between = [high * (low / high) ** (part / 4) for part in (1, 2, 3)]
        outcomes = yield [_capped(cluster, rate, job, ask) for rate in between]
        high, crossed = _crossing(high, between, outcomes, enough)
        low = low if crossed is None else crossed
    return (
        f"The knee is at {_two_figures(high)} per pair: with less, tokens/s fall by more than {HIDDEN:.0%} "
        "below what an unlimited WAN gives."
    )


def _capped(cluster: Cluster, rate: float, job: Job, ask: Ask) -> Point:
    plain = rate if math.isfinite(rate) else None
    setting = Setting(name="pair_cap", text=format_rate(rate), plain=plain)
    return Point(settings=(setting,), cluster=with_pair_cap(cluster, rate), job=job, ask=ask, order=-rate)


def _crossing(
    high: float, rates: Sequence[float], outcomes: Sequence[Outcome], enough: float
) -> tuple[float, float | None]:
    """Going down from `high`: the last rate that is enough and the first that is not, None if all are."""
    for rate, outcome in zip(rates, outcomes, strict=True):
        if not isinstance(outcome, Found) or outcome.tokens_per_s < enough:
            return high, rate
        high = rate
    return high, None


def _two_figures(rate: float) -> str:
    """All that the search knows, rounded to the side that is enough."""
    number, unit = format_rate(rate).split()
    power = 10.0 ** (math.floor(math.log10(float(number))) - 1)
    return f"{math.ceil(float(number) / power - 1e-9) * power:.3g} {unit}"
