"""How long a prefill takes: `c + g L + b x + a (2 L x + x^2)` for x new tokens after L cached ones.

c is what every pass costs, g reads the cached keys and values, b is the linear layers, a the pairs of tokens that
attention looks at. Knows neither where the figures come from nor what runs beside it.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from geotrain.timeline import Floats, Ints

Point = tuple[int, int]
"""New tokens and cached tokens."""
Spread = tuple[tuple[float, float], ...]
"""Quantiles, rising, and the real time there as a multiple of the predicted one."""

_LONGEST = 1.5
"""Time of the longest chunk over that of one of as many tokens that finds nothing cached."""
_SMALLEST = 8
"""Part of a chunk below which it is not halved for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillTime:
    """Of one model on one slot."""

    fixed_s: float = 0.0
    """c: streaming the weights, launches."""
    per_cached_s: float = 0.0
    """g: for each cached token."""
    per_token_s: float = 0.0
    """b: for each new token."""
    per_pair_s: float = 0.0
    """a: for half a pair of tokens, so that L cached and x new tokens have 2 L x + x^2 of them."""
    spread: Spread = ((0.5, 1.0),)

    def seconds(self, new: int, cached: int = 0) -> float:
        """The time of one chunk."""
        rest = new * (self.per_token_s + self.per_pair_s * (2 * cached + new))
        return self.fixed_s + self.per_cached_s * cached + rest

    def batch(self, points: Iterable[Point]) -> float:
        """The time of several prompts in one pass: what is fixed comes once."""
        times_s = [self.seconds(new, cached) for new, cached in points]
        return sum(times_s) - self.fixed_s * (len(times_s) - 1) if times_s else 0.0

    def chunks(self, new: int, cached: int, most: int) -> list[Point]:
        """A prompt cut into chunks of at most `most` new tokens; each finds the ones before it cached.

        The more is cached the longer a token takes; so that a chunk does not take much longer than the first ones, it
        has fewer tokens then.
        """
        sizes, _ = self._cut(new, cached, most)
        before = cached + np.cumsum(sizes) - sizes
        return list(zip(sizes.tolist(), before.tolist(), strict=True))

    def chunks_s(self, new: int, cached: int, most: int) -> Floats:
        """The time of each of these chunks."""
        return self._cut(new, cached, most)[1]

    def _cut(self, new: int, cached: int, most: int) -> tuple[Ints, Floats]:
        found: tuple[Ints, Floats] = _cut(
            new, cached, most, self.fixed_s, self.per_cached_s, self.per_token_s, self.per_pair_s
        )
        return found

    def factor(self, quantile: float) -> float:
        """What the predicted time is to be multiplied by so that this share of real ones is not longer."""
        after = bisect_right(self.spread, quantile, key=lambda entry: entry[0])
        if after in (0, len(self.spread)):
            return self.spread[max(0, after - 1)][1]
        (low, low_factor), (high, high_factor) = self.spread[after - 1 : after + 1]
        return low_factor + (high_factor - low_factor) * (quantile - low) / (high - low)

    def share(self, layers: float, of: int) -> "PrefillTime":
        """The time of `layers` of the model's `of` layers, as a slot of a pipeline has them.

        Everything scales, what is fixed too: it is mostly the layers' weights and launches. Embedding and head are
        left out, for prefill needs the logits of one token only.
        """
        part = layers / of
        return PrefillTime(
            fixed_s=self.fixed_s * part,
            per_cached_s=self.per_cached_s * part,
            per_token_s=self.per_token_s * part,
            per_pair_s=self.per_pair_s * part,
            spread=self.spread,
        )


_COMPILE: dict[str, Any] = {"cache": True, "error_model": "numpy"}


@njit(**_COMPILE)
def _seconds(new, cached, fixed_s, per_cached_s, per_token_s, per_pair_s):
    return fixed_s + per_cached_s * cached + new * (per_token_s + per_pair_s * (2 * cached + new))


@njit(**_COMPILE)
def _cut(new, cached, most, fixed_s, per_cached_s, per_token_s, per_pair_s):
    """Tokens and time of each chunk."""
    least = max(1, most // _SMALLEST)
    longest_s, size = _LONGEST * _seconds(most, 0, fixed_s, per_cached_s, per_token_s, per_pair_s), most
    sizes = np.empty(new // least + 1, dtype=np.int64)
    times_s = np.empty(len(sizes))
    count = 0
    while new > 0:
        while size > least and _seconds(size, cached, fixed_s, per_cached_s, per_token_s, per_pair_s) > longest_s:
            size //= 2
        sizes[count] = min(new, size)
        times_s[count] = _seconds(sizes[count], cached, fixed_s, per_cached_s, per_token_s, per_pair_s)
        new, cached, count = new - size, cached + size, count + 1
    return sizes[:count], times_s[:count]
