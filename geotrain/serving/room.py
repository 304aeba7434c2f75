"""The decoder's memory, counted in tokens, shared between tenants. Pure: every time is an argument.

A tenant alone may have all of it. Each of n tenants that asked lately may have an n-th, and at least one request. The
first that was turned away with nothing there has a claim: others that have something, or had their turn since, leave it
the room that it asked for.
"""

from collections import Counter, OrderedDict
from itertools import count
from typing import NamedTuple

from geotrain.serving.contract import Busy

_REMEMBERED_S = 130.0
"""Longer than a client is ever told to stay away."""
_CLAIM_S = 10.0
"""A claim is kept for so long after its tenant last asked."""
SOON_S = 1.0
"""When to come back, where nothing better is known."""


class _Claim(NamedTuple):
    turn: int
    """In which it was first made."""
    tokens: int
    end_s: float


class Room:
    """What each tenant has of the decoder."""

    def __init__(self) -> None:
        self.taken_tokens = 0
        self._taken: Counter[str] = Counter()
        self._asked_s: OrderedDict[str, float] = OrderedDict()
        """When each tenant last asked, the longest ago first."""
        self._turns = count(1)
        self._took: dict[str, int] = {}
        """The turn in which each tenant last took something."""
        self._claims: dict[str, _Claim] = {}
        """Of tenants without anything there, the first that was turned away first."""

    def take(self, tenant: str, tokens: int, room_tokens: int, now_s: float) -> None:
        """Take so many of the decoder's `room_tokens`; Busy if that would be more than there is for this tenant."""
        self._forget(now_s)
        self._asked_s[tenant] = now_s
        self._asked_s.move_to_end(tenant)
        if not self._has_room(tenant, tokens, room_tokens):
            if not self._taken[tenant]:
                turn = self._claims[tenant].turn if tenant in self._claims else next(self._turns)
                self._claims[tenant] = _Claim(turn, tokens, now_s + _CLAIM_S)
            raise Busy("the decoder has no room for another answer", retry_after_s=SOON_S)
        self._claims.pop(tenant, None)
        self._took[tenant] = next(self._turns)
        self._taken[tenant] += tokens
        self.taken_tokens += tokens

    def give_back(self, tenant: str, tokens: int) -> None:
        """What was taken."""
        self.taken_tokens -= tokens
        self._taken[tenant] -= tokens
        if not self._taken[tenant]:
            del self._taken[tenant]

    def _has_room(self, tenant: str, tokens: int, room_tokens: int) -> bool:
        mine, free = self._taken[tenant], room_tokens - self.taken_tokens
        first, claim = next(iter(self._claims.items()), (tenant, None))
        if claim is not None and first != tenant and (mine or self._took.get(tenant, 0) > claim.turn):
            free -= claim.tokens
        return tokens <= free and (not mine or mine + tokens <= room_tokens / len(self._asked_s))

    def _forget(self, now_s: float) -> None:
        """Forget tenants that have not asked for long, and claims that were not asked for again."""
        while self._asked_s and next(iter(self._asked_s.values())) < now_s - _REMEMBERED_S:
            tenant, _ = self._asked_s.popitem(last=False)
            self._claims.pop(tenant, None)
            self._took.pop(tenant, None)
        while self._claims and next(iter(self._claims.values())).end_s < now_s:
            del self._claims[next(iter(self._claims))]
