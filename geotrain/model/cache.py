"""Keys and values of the tokens that a decoder has seen, and attention to them."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


class Cache:
    """Keys and values of each layer, for sequences that grow to at most `capacity` tokens.

    Memory is taken for `block` tokens at a time, or for all at once.
    """

    def __init__(self, capacity: int, *, block: int | None = None) -> None:
        self.capacity = capacity
        self._block = block or max(capacity, 1)
        self.length = 0
        """Tokens that every layer has seen."""
        self.layers: dict[int, Tensor] = {}
        """By the layer's number: [keys or values, batch, head, token, head_dim]."""

    def positions(self, new: int, device: torch.device) -> Tensor:
        """Where the next tokens stand."""
        return torch.arange(self.length, self.length + new, dtype=torch.float32, device=device)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, *, window: int | None = None) -> Tensor:
        """What new tokens find in all before them and in themselves; their keys and values are kept."""
        end = self.length + keys.shape[2]
        self.write(layer, self.length, torch.stack((keys, values)))
        kept = self.layers[layer]
        return attend(queries, kept[0, :, :, :end], kept[1, :, :, :end], window=window)

    def write(self, layer: int, start: int, new: Tensor) -> None:
        """Keep those of the tokens from `start` on, as `layers` has them."""
        end = start + new.shape[3]
        assert end <= self.capacity, f"{end} tokens in a cache for {self.capacity}"
        kept = self.layers.get(layer)
        if kept is None or end > kept.shape[3]:
            size = min(self.capacity, -(-end // self._block) * self._block)
            grown = new.new_empty(*new.shape[:3], size, new.shape[4])
            if kept is not None:
                grown[:, :, :, : kept.shape[3]] = kept
            kept = self.layers[layer] = grown
        kept[:, :, :, start:end] = new

    def advance(self, new: int) -> None:
        """Every layer has seen so many more tokens."""
        self.length += new


class Row:
    """New tokens of several sequences in one row: every layer works on all at once, yet none sees another's."""

    def __init__(self, caches: Sequence[Cache], new: Sequence[int]) -> None:
        self._caches = caches
        self._new = list(new)

    def positions(self, new: int, device: torch.device) -> Tensor:
        """Where each stands in its own sequence."""
        assert new == sum(self._new), f"{new} tokens for sequences with {self._new}"
        return torch.cat([cache.positions(mine, device) for cache, mine in self._each()])

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, *, window: int | None = None) -> Tensor:
        """As a cache does."""
        shares = zip(*(torch.split(x, self._new, dim=2) for x in (queries, keys, values)), strict=True)
        found = [cache.attend(layer, *share, window=window) for cache, share in zip(self._caches, shares, strict=True)]
        return torch.cat(found, dim=2)

    def advance(self, new: int) -> None:
        """Every sequence by its own."""
        for cache, mine in self._each():
            cache.advance(mine)

    def _each(self) -> Iterator[tuple[Cache, int]]:
        return zip(self._caches, self._new, strict=True)


def attend(queries: Tensor, keys: Tensor, values: Tensor, *, window: int | None = None) -> Tensor:
    """Causal: the queries are those of the last tokens, and see the last `window` tokens up to their own, or all."""
    new = queries.shape[2]
    if window is not None:
        seen = window + new - 1
        keys, values = keys[:, :, -seen:], values[:, :, -seen:]
    total = keys.shape[2]
    if new == 1 < total:
        # Query heads that share a key head see the same tokens, so they go as several tokens of one head: a copy less.
        grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[3])
        return F.scaled_dot_product_attention(grouped, keys, values).reshape(queries.shape)
    mask = None
    narrow = window is not None and window < total
    if 1 < new < total or narrow:
        mask = torch.ones(new, total, dtype=torch.bool, device=queries.device).tril(total - new)
    if mask is not None and window is not None:
        mask = mask.triu(total - new - window + 1)
    return F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=mask is None and new == total, enable_gqa=True
    )
