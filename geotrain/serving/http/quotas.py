"""What the keys of each tenant allow together: requests and tokens under way, and requests a second."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from geotrain.errors import InputError
from geotrain.serving.contract import Busy
from geotrain.serving.http.auth import Caller
from geotrain.serving.http.limits import Limits
from geotrain.units import plural

_BURST_S = 10.0
"""A tenant that was quiet may ask for so much of its rate at once."""
_SOON_S = 1.0
_CODE = "quota_exceeded"


@dataclass
class _Use:
    requests: int = 0
    tokens: int = 0
    bytes: int = 0
    budget: float = 0.0
    """Requests that the rate allows now."""
    counted_s: float = 0.0


class Quotas:
    """Of all tenants that have a key; callers without one share what there is."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._uses: dict[str, _Use] = {}
        self._bytes = 0

    def enter(self, caller: Caller) -> "Held":
        """Begin a request, which must be left; Busy if the key does not allow it now."""
        use = self._uses.setdefault(caller.tenant, _Use(budget=_burst(caller), counted_s=self._clock()))
        if caller.max_requests is not None and use.requests >= caller.max_requests:
            message = f"this tenant has {plural(use.requests, 'request')} under way, its most"
            raise Busy(message, retry_after_s=_SOON_S, code=_CODE)
        if caller.rate is not None:
            now_s = self._clock()
            use.budget = min(_burst(caller), use.budget + (now_s - use.counted_s) * caller.rate)
            use.counted_s = now_s
            if use.budget < 1:
                message = f"this tenant allows {caller.rate:g} requests a second"
                raise Busy(message, retry_after_s=(1 - use.budget) / caller.rate, code=_CODE)
            use.budget -= 1
        use.requests += 1
        return Held(self, caller, use)

    def read(self, held: "Held", size_bytes: int) -> None:
        """Count bytes of a body; Busy if they are too many together, or for one tenant."""
        self._bytes += size_bytes
        held.use.bytes += size_bytes
        held.size_bytes += size_bytes
        most = self._limits.max_held_bytes
        mine = max(self._limits.max_body_bytes, most // 2) if held.caller.tenant else most
        if self._bytes > most or held.use.bytes > mine:
            message = "too many bytes of requests are being worked on"
            raise Busy(message, retry_after_s=_SOON_S, code="too_many_bytes")

    def leave(self, held: "Held") -> None:
        """End a request."""
        held.use.requests -= 1
        held.use.tokens -= held.tokens
        held.use.bytes -= held.size_bytes
        self._bytes -= held.size_bytes


class Held:
    """What one request takes of its tenant's quota."""

    def __init__(self, quotas: Quotas, caller: Caller, use: _Use) -> None:
        self._quotas, self.caller, self.use = quotas, caller, use
        self.tokens = self.size_bytes = 0

    def read(self, size_bytes: int) -> None:
        """Bytes of its body; Busy if they are too many."""
        self._quotas.read(self, size_bytes)

    def take(self, tokens: int) -> None:
        """Tokens of its prompts and of their longest answers; Busy if the key does not allow them now."""
        most = self.caller.max_tokens
        if most is not None and self.use.tokens + tokens > most:
            if tokens > most:
                raise InputError(f"prompts and answers take {tokens} tokens, and this tenant allows {most} at a time")
            message = (
                f"this tenant has {self.use.tokens} tokens under way and allows {most}; this request asks for {tokens}"
            )
            raise Busy(message, retry_after_s=_SOON_S, code=_CODE)
        self.use.tokens += tokens
        self.tokens += tokens

    def leave(self) -> None:
        """The request has ended."""
        self._quotas.leave(self)


def _burst(caller: Caller) -> float:
    return 0.0 if caller.rate is None else max(1.0, caller.rate * _BURST_S)
