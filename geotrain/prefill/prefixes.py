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
        if not blocks or blocks[0] not in self._where:
            return []
        # Whoever holds a block holds those before it, which are forgotten later.
        most = min(_MOST_MATCHES, len(self._where[blocks[0]]))
        known = next((number for number, block in enumerate(blocks) if block not in self._where), len(blocks))
        found: dict[int, int] = {}
        for number in range(known, 0, -1):
            for instance in self._where[blocks[number - 1]]:
                found.setdefault(instance, number * BLOCK_TOKENS)
                if len(found) == most:
                    return list(found.items())
        return list(found.items())

    def keep(self, instance: int, blocks: Sequence[int], room_tokens: int) -> None:
        """Remember them, as far as there is room."""
        kept = self._kept[instance]
        # The first block last: without it the others are of no use, so it is the last to be forgotten.
        for block in reversed(blocks):
            if block in kept:
                kept.move_to_end(block)
            else:
                kept[block] = None
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
