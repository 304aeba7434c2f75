"""Requests in fair order: every flow (tenant and priority) gets its weight's share of the work, so nobody starves."""

from bisect import bisect_right, insort
from dataclasses import dataclass
from itertools import count

from geotrain.prefill.request import Request

_PRIORITY_WEIGHT = 4.0
_MOST_IDLE_FLOWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A request that was let in."""

    request: Request
    work_s: float
    deadline_s: float


class FairQueue:
    """Self-clocked fair queueing: a request's tag is when its flow, given its share, would be through with it.

    The clock is the tag of who was served last, so whoever waits is overtaken only until the clock is there.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Waiting]] = []
        self._numbers = count()
        self._now = 0.0
        self._flow_end: dict[tuple[str, int], float] = {}
        self.work_s = 0.0
        """Of everybody who waits."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, waiting: Waiting) -> None:
        """Let it wait for its turn."""
        request = waiting.request
        tag = self._tag(request, waiting.work_s)
        self._flow_end[request.tenant, request.priority] = tag
        insort(self._entries, (tag, next(self._numbers), waiting))
        self.work_s += waiting.work_s

    def work_ahead_s(self, request: Request, work_s: float) -> float:
        """About how much work would be done before this request's; exact when all are equally long."""
        if not self._entries:
            return 0.0
        place = bisect_right(self._entries, self._tag(request, work_s), key=lambda entry: entry[0])
        return self.work_s * place / len(self._entries)

    def first(self) -> Waiting:
        """Whose turn it is."""
        return self._entries[0][2]

    def take(self) -> Waiting:
        """The first, off the queue."""
        self._now = self._entries[0][0]
        return self._leave(0)

    def remove(self, request_id: int) -> Waiting | None:
        """Somebody who no longer wants to wait."""
        for index, (_, _, waiting) in enumerate(self._entries):
            if waiting.request.id == request_id:
                return self._leave(index)
        return None

    def _leave(self, index: int) -> Waiting:
        _, _, waiting = self._entries.pop(index)
        self.work_s -= waiting.work_s
        if not self._entries:
            self._now = self.work_s = 0.0
            self._flow_end.clear()
        elif len(self._flow_end) > _MOST_IDLE_FLOWS + len(self._entries):
            self._flow_end = {flow: end for flow, end in self._flow_end.items() if end > self._now}
        return waiting

    def _tag(self, request: Request, work_s: float) -> float:
        begin = max(self._now, self._flow_end.get((request.tenant, request.priority), 0.0))
        return begin + work_s / _PRIORITY_WEIGHT**request.priority
