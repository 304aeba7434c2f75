"""Training's side of the window file: says when the slot is idle, to whoever may listen.

Knows nothing of prefill, and nothing that listeners do or suffer can hold training up.
"""

import fcntl
import mmap
import os
import time
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path

from geotrain.errors import RunError
from geotrain.serving.windows import FILE_BYTES, NUM_PAST, Past, Record, State, open_pipe, pack, paths, place


class Announcer:
    """One process; a `Listener` of its trainer. Once made, its methods neither wait nor raise."""

    def __init__(self, directory: Path, name: str) -> None:
        """RunError if the files cannot be made."""
        path, wake = paths(directory, name)
        self._past = deque([Past(0, 0.0, 0.0, 0.0)] * NUM_PAST, maxlen=NUM_PAST)
        now_s = time.monotonic()
        self._state = State.STARTING
        self._pid, self._born_s = os.getpid(), now_s
        self._number = self._step = self._mark = self._num_windows = self._num_past = 0
        self._begin_s = self._length_s = self._idle_s = self._lead_s = 0.0
        self._is_open = False
        self._start_s = self._end_s = self._over_s = now_s
        with ExitStack() as undone:
            try:
                self._pipe = open_pipe(wake)
                undone.callback(os.close, self._pipe)
                partial = path.with_name(f".{path.name}.{self._pid}")
                partial.unlink(missing_ok=True)
                undone.callback(partial.unlink, missing_ok=True)
                self._file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                undone.callback(os.close, self._file)
                # Without its blocks, a disk that fills up later would kill whoever writes to the memory.
                os.posix_fallocate(self._file, 0, FILE_BYTES)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._memory = mmap.mmap(self._file, FILE_BYTES)
                self._write(now_s)
                partial.replace(path)
            except OSError as error:
                raise RunError(f"{path}: cannot be made: {error.strerror}") from None
            undone.pop_all()

    def step(self, number: int, begin_s: float, length_s: float) -> None:
        """A step has begun, and should last so long."""
        self._state = State.RUNNING
        self._step, self._begin_s, self._length_s = number, begin_s, length_s
        self._write(begin_s)
        self._wake()

    def idle(self, mark: int, now_s: float, end_s: float, lead_s: float) -> None:
        """A window begins, or what comes behind it is foreseen anew."""
        if not self._is_open:
            self._is_open, self._start_s = True, now_s
            self._num_windows += 1
        self._mark, self._end_s, self._lead_s = mark, end_s, lead_s
        self._write(now_s)
        self._wake()

    def busy(self, now_s: float) -> None:
        """It is over."""
        self._is_open, self._over_s = False, now_s
        self._idle_s += now_s - self._start_s
        # Nobody was promised more than the lead while what was waited for had not set out.
        expected_s = min(self._end_s, now_s + self._lead_s) if self._lead_s else self._end_s
        self._past.append(Past(self._mark, self._start_s, now_s, expected_s))
        self._num_past += 1
        self._write(now_s)

    def close(self) -> None:
        """Training has ended."""
        self._state, self._is_open = State.ENDED, False
        self._write(time.monotonic())
        self._wake()
        self._memory.close()
        os.close(self._file)
        os.close(self._pipe)

    def _write(self, now_s: float) -> None:
        self._number += 1
        record = Record(
            self._state,
            self._is_open,
            self._number,
            self._pid,
            self._born_s,
            self._step,
            self._begin_s,
            self._length_s,
            self._mark,
            self._start_s,
            self._end_s,
            self._lead_s,
            self._over_s,
            now_s,
            self._num_windows,
            self._num_past,
            self._idle_s,
            tuple(self._past),
        )
        self._memory[place(self._number)] = pack(record)

    def _wake(self) -> None:
        # A pipe that is full means that nobody has listened for long.
        with suppress(OSError):
            os.write(self._pipe, b"\0")
