"""API keys: who asks, on whose account, how urgently, and how much.

    # one per line: key, tenant, priority, quotas; all but the key may be left out
    sk-0123456789abcdef  search-team  1  requests=20 tokens=100000 rate=5

Only the keys' SHA-256 is kept, so that no log, error or dump can show one.
"""

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from geotrain.errors import InputError
from geotrain.files import read_text

_KEY = re.compile(r"[!-~]{16,256}")
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PRIORITY = re.compile(r"[0-4]")
_QUOTA = re.compile(r"(requests|tokens|rate)=([0-9]{1,9}(?:\.[0-9]{1,3})?)")
_MOST_REQUESTS = 256
"""Of a tenant under way at the same time, where its key does not say."""
_BEARER = re.compile(r"bearer +([!-~]+) *", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Whom a request is for."""

    tenant: str = ""
    """Empty where there are no keys: the request may say."""
    priority: int = 0
    """Each level weighs four times the one below."""
    max_requests: int | None = None
    """Under way at the same time."""
    max_tokens: int | None = None
    """Of prompts and answers under way at the same time."""
    rate: float | None = None
    """Requests a second."""

    @property
    def quotas(self) -> tuple[float | None, ...]:
        """What the keys of its tenant allow together."""
        return self.max_requests, self.max_tokens, self.rate


class Keys:
    """Everybody who may ask; nobody listed means that anybody may."""

    def __init__(self, callers: Sequence[tuple[bytes, Caller]] = ()) -> None:
        """The SHA-256 of each key and its owner."""
        self._callers = tuple(callers)

    @classmethod
    def load(cls, path: Path) -> Self:
        """From a file, which must have at least one."""
        return cls.parse(read_text(path), source=str(path))

    @classmethod
    def parse(cls, text: str, *, source: str) -> Self:
        """From text in the form of a file; `source` begins the sentence if it is wrong."""
        lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
        callers: dict[bytes, Caller] = {}
        for number, words in lines:
            if not words or words[0].startswith("#"):
                continue
            digest, caller = _entry(words, number, where=f"{source}: line {number}")
            if digest in callers:
                raise InputError(f"{source}: line {number}: this key is given twice")
            for other in callers.values():
                if other.tenant == caller.tenant and other.quotas != caller.quotas:
                    message = (
                        "its tenant has another key with other quotas; keys of one tenant share them, and must agree"
                    )
                    raise InputError(f"{source}: line {number}: {message}")
            callers[digest] = caller
        if not callers:
            raise InputError(f"{source}: has no key; a line is: key tenant priority quotas")
        return cls(tuple(callers.items()))

    def __bool__(self) -> bool:
        return bool(self._callers)

    def caller(self, authorization: str) -> Caller | None:
        """Whose key this header has, or None. Takes as long for a wrong key as for any right one."""
        if not self:
            return Caller()
        bearer = _BEARER.fullmatch(authorization)
        given = sha256(bearer[1].encode() if bearer else b"").digest()
        found = None
        for digest, caller in self._callers:
            if hmac.compare_digest(digest, given):
                found = caller
        return found


def _entry(words: list[str], number: int, *, where: str) -> tuple[bytes, Caller]:
    """The messages never repeat what was written: it may be a key."""
    named = next((at for at, word in enumerate(words) if at and "=" in word), len(words))
    key, tenant, priority, *more = [*words[:named], "", "", ""][: max(3, named)]
    if not _KEY.fullmatch(key):
        raise InputError(f"{where}: a key must be 16 to 256 printable ASCII characters")
    if tenant and not _TENANT.fullmatch(tenant):
        raise InputError(f"{where}: a tenant must be 1 to 64 letters, digits, dots, hyphens and underscores")
    if priority and not _PRIORITY.fullmatch(priority):
        raise InputError(f"{where}: a priority must be 0 to 4")
    if more:
        raise InputError(f"{where}: has {named} words and must have at most 3 before its quotas: key tenant priority")
    quotas = _quotas(words[named:], where=where)
    return sha256(key.encode()).digest(), Caller(
        tenant=tenant or f"key-{number}",
        priority=int(priority or 0),
        max_requests=int(quotas.get("requests", _MOST_REQUESTS)),
        max_tokens=int(quotas["tokens"]) if "tokens" in quotas else None,
        rate=quotas.get("rate"),
    )


def _quotas(words: list[str], *, where: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        match = _QUOTA.fullmatch(word)
        if match is None or float(match[2]) == 0 or (match[1] != "rate" and "." in match[2]) or match[1] in found:
            message = "a quota must be requests=N, tokens=N or rate=N a second, above 0, and each at most once"
            raise InputError(f"{where}: {message}")
        found[match[1]] = float(match[2])
    return found
