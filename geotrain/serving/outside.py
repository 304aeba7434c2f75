"""Those who were turned away and will be back: how long each should stay away, so that no more come than are served."""

import heapq
from collections import deque

_REMEMBERED_S = 10.0
_MOST_S = 120.0
_GOLDEN = 0.618034
_SPREAD = 0.5


class Outside:
    """Of one service."""

    def __init__(self) -> None:
        self._back_s: list[float] = []
        """When they have been told to come back, the soonest first."""
        self._taken_s: deque[float] = deque()
        self._number = 0

    def taken(self, now_s: float) -> None:
        """A request was let in."""
        self._taken_s.append(now_s)
        self._trim(now_s)

    def turned_away(self, now_s: float, least_s: float, hoped_rps: float) -> float:
        """After how long to come back, if at least `hoped_rps` can be served; not all at the same time."""
        while self._back_s and self._back_s[0] <= now_s:
            heapq.heappop(self._back_s)
        self._trim(now_s)
        rate = max(hoped_rps, len(self._taken_s) / _REMEMBERED_S)
        self._number += 1
        spread = 1 - _SPREAD / 2 + _SPREAD * (self._number * _GOLDEN % 1)
        retry_s = min(_MOST_S, max(least_s, len(self._back_s) / rate) * spread)
        heapq.heappush(self._back_s, now_s + retry_s)
        return retry_s

    def _trim(self, now_s: float) -> None:
        while self._taken_s and self._taken_s[0] < now_s - _REMEMBERED_S:
            self._taken_s.popleft()
