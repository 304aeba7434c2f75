"""One run per directory: a file that a process keeps locked while it lives. Does not import torch."""

import errno
import fcntl
import os
import socket
import sys
import time
from pathlib import Path

from geotrain.errors import InputError

_LOOK_S = 0.1
_UNABLE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems say that have no locks."""


class Lock:
    """Taken when made; InputError if another process has it for longer than `patience_s`.

    The kernel releases it when the process ends, however that happens. On NFS it holds for all nodes that mount the
    directory with locking; one that vanishes keeps it until the server gives up its lease.
    """

    def __init__(self, path: Path, *, patience_s: float = 0.0) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(f"{path}: cannot be opened: {error.strerror}") from None
        end_s = time.monotonic() + patience_s
        while not self._taken(path):
            if time.monotonic() >= end_s:
                holder = os.pread(self._file, 200, 0).decode(errors="replace").strip() or "another process"
                os.close(self._file)
                raise InputError(f"{path}: {holder} runs into this directory; wait for its end, or name another")
            time.sleep(_LOOK_S)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def _taken(self, path: Path) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _UNABLE:
                raise InputError(f"{path}: cannot be locked: {error.strerror}") from None
            sys.stderr.write(f"warning: {path}: cannot be locked: {error.strerror}; start no other run here\n")
        return True

    def release(self) -> None:
        """Let others have it; the file stays."""
        os.close(self._file)
