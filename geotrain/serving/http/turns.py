"""Whose request is read next: tenants take turns, and none has all places."""

import asyncio
from collections import Counter, deque


class Turns:
    """A few places. A tenant has at most all but one; of those that wait, each tenant's first comes in turn.

    So a tenant that has nothing inside waits at most for one request of each other tenant, and not at all while only
    one other is there, however many requests that one has.
    """

    def __init__(self, places: int) -> None:
        self._free, self._each = places, max(1, places - 1)
        self._inside: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Never empty; the tenant whose turn it is comes first."""

    async def enter(self, tenant: str) -> None:
        """Wait for a place, which must be left."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(tenant)
            raise

    def leave(self, tenant: str) -> None:
        """Give the place to the next."""
        self._free += 1
        self._inside[tenant] -= 1
        if not self._inside[tenant]:
            del self._inside[tenant]
        self._let_in()

    def _let_in(self) -> None:
        while self._free:
            tenant = next((name for name in self._waiting if self._inside[name] < self._each), None)
            if tenant is None:
                return
            queue = self._waiting.pop(tenant)
            turn = queue.popleft()
            if queue:
                self._waiting[tenant] = queue
            if not turn.cancelled():
                self._free -= 1
                self._inside[tenant] += 1
                turn.set_result(None)
