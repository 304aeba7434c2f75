"""Errors as clients of OpenAI know them: a status, and `{"error": {"message", "type", "param", "code"}}`."""

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from geotrain.errors import InputError
from geotrain.serving.contract import Broken, Busy, Draining

CLIENT_GONE = 499
"""Status, for the log only, of a request whose client has left."""
_log = logging.getLogger(__name__)
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = dict(headers or {})

    @classmethod
    def of(cls, error: Exception, *, request_id: str) -> "Refusal":
        """What a client is told about an error; one that nobody expected is for the log."""
        match error:
            case Refusal():
                return error
            case Busy():
                return cls(429, error.code, str(error), headers=retry_after(error.retry_after_s))
            case Draining():
                return cls(503, "draining", str(error), headers=retry_after(1.0))
            case Broken():
                return cls(500, "request_lost", str(error))
            case TimeoutError():
                return cls(504, "deadline_exceeded", "the request took longer than this server allows")
            case InputError():
                return cls(400, "invalid_value", str(error))
            case _:
                _log.error("request %s failed", request_id, exc_info=error)
                return cls(500, "internal_error", "the server made a mistake; its log says more")

    def content(self) -> dict[str, Any]:
        """The body."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def body(self) -> bytes:
        """As JSON in ASCII: a message may repeat what no encoding can carry."""
        return json.dumps(self.content()).encode()


def retry_after(delay_s: float) -> dict[str, str]:
    """When to come back: in whole seconds for HTTP, in milliseconds for the client of OpenAI."""
    return {"retry-after": str(max(1, math.ceil(delay_s))), "retry-after-ms": str(max(1, math.ceil(delay_s * 1000)))}
