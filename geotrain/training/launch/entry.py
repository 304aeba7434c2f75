"""Stands before every process of a run: `python entry.py PARENT LOG COMMAND...`; then it becomes the command.

It ties the process's life to its parent's (a number; 0 for whoever that is), so that none is left when an agent or the
launcher is killed, and sends its output to the end of LOG, in which `{rank}` is its rank. A file of its own that knows
nothing of geotrain: it starts in milliseconds.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, log: str, *command: str) -> None:
    """Does not return."""
    born_to = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != born_to:
            sys.exit("its parent has died")
    path = log.replace("{rank}", os.environ.get("RANK", ""))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"=== process {os.getpid()}, attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}\n".encode())
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"error: {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
