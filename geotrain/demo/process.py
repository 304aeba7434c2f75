"""A geotrain command as a process of its own, which ends when the block that needs it does."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from geotrain.errors import RunError

_LOOK_S = 0.1
_ENDING_S = 60.0


class Process:
    """One that runs."""

    def __init__(self, log: Path, arguments: Sequence[object]) -> None:
        self._log, self._name = log, f"geotrain {arguments[0]}"
        command = [sys.executable, "-m", "geotrain", *map(str, arguments)]
        with log.open("wb") as file:
            # In a session of its own, Ctrl-C reaches it through us alone.
            self._inner = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._inner.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._inner.poll() is None

    def until(self, file: Path, pattern: str, deadline_s: float) -> str:
        """What the file has for the pattern's group, once it has; RunError if it never will."""
        end_s = time.monotonic() + deadline_s
        while time.monotonic() < end_s:
            if file.exists() and (match := re.search(pattern, file.read_text(encoding="utf-8"))):
                return match[1]
            if not self.running:
                raise self._ended()
            time.sleep(_LOOK_S)
        raise RunError(f"{self._name}: not ready after {deadline_s:g} s: {self._last_words()}")

    def finish(self, deadline_s: float) -> None:
        """Until it ends by itself; RunError if it fails."""
        try:
            code = self._inner.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise RunError(f"{self._name}: not done after {deadline_s:g} s: {self._last_words()}") from None
        if code:
            raise self._ended()

    def end(self) -> None:
        """Ask it to, and if need be make it."""
        self._inner.terminate()
        try:
            self._inner.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._inner.kill()
            self._inner.wait()

    def _ended(self) -> RunError:
        return RunError(f"{self._name}: ended with {self._inner.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        return (self._log.read_text(encoding="utf-8", errors="replace").splitlines() or ["nothing was said"])[-1]


@contextmanager
def started(log: Path, arguments: Sequence[object]) -> Iterator[Process]:
    """Runs as long as the block."""
    process = Process(log, arguments)
    try:
        yield process
    finally:
        process.end()
