"""Prefixes whose keys and values are still on an instance: the least recently used go first."""

from collections import OrderedDict
from collections.abc import Sequence

from geotrain.prefill.request import BLOCK_TOKENS

_MOST_MATCHES = 4


class Prefixes:
    """Blocks that instances keep in memory that no request needs at the moment."""

    def __init__(self, num_instances: int) -> None:
        self._kept: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(num_instances)]
        self._where: dict[int, set[int]] = {}

    def longest(self, blocks: Sequence[int]) -> list[tuple[int, int]]:
        """Some instances that hold the first blocks, and how many tokens of them; the longest first."""
        found: list[tuple[int, int]] = []
        holders: set[int] = set()
        for number, block in enumerate(blocks):
            there = self._where.get(block, set())
            still = there & holders if number else there
            if number:
                found.extend((instance, number * BLOCK_TOKENS) for instance in sorted(holders - still))
            holders = still
            if not holders:
                break
        else:
            found.extend((instance, len(blocks) * BLOCK_TOKENS) for instance in sorted(holders))
        return found[: -_MOST_MATCHES - 1 : -1]

    def keep(self, instance: int, blocks: Sequence[int], room_tokens: int) -> None:
        """Remember them, as far as there is room."""
        kept = self._kept[instance]
        for block in blocks:
            kept[block] = None
            kept.move_to_end(block)
            self._where.setdefault(block, set()).add(instance)
        self.shrink(instance, room_tokens)

    def shrink(self, instance: int, room_tokens: int) -> None:
        """Forget until the rest fits."""
        kept = self._kept[instance]
        while len(kept) * BLOCK_TOKENS > max(0, room_tokens):
            block, _ = kept.popitem(last=False)
            holders = self._where[block]
            holders.discard(instance)
            if not holders:
                del self._where[block]

    def tokens(self, instance: int) -> int:
        """Kept there."""
        return len(self._kept[instance]) * BLOCK_TOKENS
