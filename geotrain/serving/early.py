"""What workers send for a request before serve has announced it: kept for a moment, and only so much.

Two connections have no common order, so keys and values may come first. Nothing is kept for who is over.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, field

from geotrain.serving.messages import FirstToken, Kv

_MOST_BYTES = 256 << 20
"""More than a moment's worth means that nobody will announce it."""
_MOST_OVER = 65536


@dataclass
class _Kept:
    since_s: float = field(default_factory=time.monotonic)
    messages: list[tuple[Kv | FirstToken, bytearray]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(len(payload) for _, payload in self.messages)


class Early:
    """Of one decoder."""

    def __init__(self, *, lease_s: float) -> None:
        """`lease_s`: what nobody has asked for after so long is dropped."""
        self._lease_s = lease_s
        self._kept: dict[str, _Kept] = {}
        self._over: OrderedDict[str, None] = OrderedDict()
        self.held_bytes = 0

    def keep(self, message: Kv | FirstToken, payload: bytearray) -> None:
        """Unless its request is over, or too much is kept already."""
        if message.request not in self._over and self.held_bytes + len(payload) <= _MOST_BYTES:
            self._kept.setdefault(message.request, _Kept()).messages.append((message, payload))
            self.held_bytes += len(payload)

    def take(self, request: str) -> list[tuple[Kv | FirstToken, bytearray]]:
        """What came for it, in order."""
        kept = self._kept.pop(request, _Kept())
        self.held_bytes -= kept.size_bytes
        return kept.messages

    def over(self, request: str) -> None:
        """What still comes for it is of no use."""
        self.take(request)
        self._over[request] = None
        if len(self._over) > _MOST_OVER:
            self._over.popitem(last=False)

    def sweep(self) -> None:
        """Drop what has waited too long; to be called now and then."""
        since_s = time.monotonic() - self._lease_s
        for request in [request for request, kept in self._kept.items() if kept.since_s < since_s]:
            self.take(request)
