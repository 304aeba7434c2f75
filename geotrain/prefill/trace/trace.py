"""A sequence of requests, and the same at another rate or of another length. Knows no file."""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Self

from geotrain.errors import InputError
from geotrain.prefill.request import Request

_MOST_REQUESTS = 5_000_000
"""A gigabyte or two of them."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """At least one request; they are in order of arrival, the first at 0, and each has its place as its id."""

    name: str
    requests: tuple[Request, ...]

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last."""
        return self.requests[-1].arrival_s

    @property
    def rate_rps(self) -> float:
        """One over the mean time between arrivals; infinite where all arrive at once."""
        return (len(self.requests) - 1) / self.duration_s if self.duration_s else math.inf

    @property
    def input_tokens(self) -> int:
        """Of all requests."""
        return sum(request.input_tokens for request in self.requests)

    def scaled(self, factor: float) -> Self:
        """The same requests, `factor` times as fast."""
        if not 0 < factor < math.inf:
            raise InputError(f"{self.name}: its rate is scaled by {factor:g}, which must be a number above 0")
        return replace(self, requests=tuple(replace(r, arrival_s=r.arrival_s / factor) for r in self.requests))

    def at_rate(self, rate_rps: float) -> Self:
        """The same requests at another mean rate."""
        return self.scaled(rate_rps / self._known_rate("be brought to another one"))

    def first(self, duration_s: float) -> Self:
        """Those that arrive before that time."""
        if not duration_s > 0:
            raise InputError(f"{self.name}: {duration_s:g} s of it are wanted, which must be more than 0 s")
        until = bisect_left(self.requests, duration_s, key=lambda request: request.arrival_s)
        return replace(self, requests=self.requests[:until])

    def repeated(self, duration_s: float) -> Self:
        """Played again and again, or cut, to last that long; a later round's prefixes are new ones."""
        first = self.first(duration_s)
        if len(first.requests) < len(self.requests):
            return first
        period_s = len(self.requests) / self._known_rate("be repeated")
        number = duration_s * self.rate_rps
        if number > _MOST_REQUESTS:
            raise InputError(
                f"{self.name}: {self.rate_rps:.4g} requests/s for {duration_s:.4g} s are {number:.3g} and must be at "
                f"most {_MOST_REQUESTS:.0e}: a shorter --duration would do"
            )
        num_blocks = 1 + max((block for request in self.requests for block in request.blocks), default=-1)
        rounds = (self._later(turn, period_s, num_blocks) for turn in range(math.ceil(duration_s / period_s)))
        return replace(self, requests=tuple(request for turn in rounds for request in turn)).first(duration_s)

    def _later(self, turn: int, period_s: float, num_blocks: int) -> list[Request]:
        return [
            replace(
                request,
                id=request.id + turn * len(self.requests),
                arrival_s=request.arrival_s + turn * period_s,
                blocks=tuple(block + turn * num_blocks for block in request.blocks),
            )
            for request in self.requests
        ]

    def _known_rate(self, wish: str) -> float:
        if math.isinf(self.rate_rps):
            raise InputError(f"{self.name}: all its requests arrive at one moment, so it has no rate and cannot {wish}")
        return self.rate_rps
