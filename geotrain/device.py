"""A GPU that is not there: whoever computes on it holds it for a time, and others wait, also in other processes."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geotrain.errors import RunError

DEADLINE_S = 300.0
_LOOK_S = 0.0003
"""Between two looks at a device that others hold; a small part of what an action takes."""


class Device:
    """That of the process with that name: shared by all who look for it in the same directory, or private."""

    def __init__(self, directory: Path | None, name: str, *, deadline_s: float = DEADLINE_S) -> None:
        self._file, self._deadline_s = None, deadline_s
        self._path = name if directory is None else str(directory / f"{name}.device")
        if directory is not None:
            path = directory / f"{name}.device"
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise RunError(f"{path}: cannot be opened: {error.strerror}") from None

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """For that long, or as long as the block takes if that is longer; RunError if others hold it too long."""
        self._take()
        start_s = time.monotonic()
        try:
            yield
            time.sleep(max(0.0, start_s + seconds - time.monotonic()))
        finally:
            if self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _take(self) -> None:
        if self._file is None:
            return
        end_s = time.monotonic() + self._deadline_s
        while True:
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise RunError(f"{self._path}: another process has held it for {self._deadline_s:g} s") from None
                time.sleep(_LOOK_S)

    def hold(self, seconds: float) -> None:
        """Keep it busy."""
        with self.held(seconds):
            pass
