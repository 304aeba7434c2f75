"""One line of JSON per request. Never a key, never a word of a prompt or an answer."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

MOST_BYTES = 64 << 20
"""Of a file; with the one before, a log takes twice as much."""


@dataclass(kw_only=True)
class Entry:
    """What is known of a request so far; filled in while it goes on."""

    id: str
    method: str
    path: str
    arrival_s: float = field(default_factory=time.monotonic)
    body_bytes: int = 0
    status: int = 0
    """0 while there is no answer."""
    error: str | None = None
    """OpenAI's code of what went wrong, also in a stream that had begun well."""
    answer: str | None = None
    """Id of the answer."""
    model: str | None = None
    tenant: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ttft_s: float | None = None

    @property
    def age_s(self) -> float:
        """Time since it arrived."""
        return time.monotonic() - self.arrival_s


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> object:
        """One or more whole lines."""

    def flush(self) -> object:
        """Have what was written where others can read it."""


class RotatingFile:
    """A text file that is renamed to NAME.1, in place of the last such one, before it has more than `most_bytes`."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._most_bytes = path, most_bytes
        self._file = path.open("ab")

    def write(self, text: str) -> None:
        """Whole lines, which stay together."""
        data = text.encode()
        if self._file.tell() and self._file.tell() + len(data) > self._most_bytes:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._path.open("ab")
        self._file.write(data)

    def flush(self) -> None:
        """As files do."""
        self._file.flush()

    def close(self) -> None:
        """No more."""
        self._file.close()


class AccessLog:
    """Writes entries to a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, entry: Entry) -> None:
        """The request is over. A log that cannot be written does not stop the service."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": entry.id,
            "tenant": entry.tenant,
            "method": entry.method,
            "path": entry.path[:256],
            "body_bytes": entry.body_bytes,
            "status": entry.status,
            "error": entry.error,
            "answer": entry.answer,
            "model": entry.model,
            "prompt_tokens": entry.prompt_tokens,
            "completion_tokens": entry.completion_tokens,
            "ttft_s": None if entry.ttft_s is None else round(entry.ttft_s, 6),
            "duration_s": round(entry.age_s, 6),
        }
        with suppress(OSError, ValueError):
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()
