"""Finding and ending the processes of a testbed, without ever touching one of somebody else's."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from geotrain.errors import RunError
from geotrain.testbed.record import MARK, Files, Record

PATIENCE_S, DEADLINE_S = 3.0, 30.0
"""Between the polite signal and the other one; and after that: the kernel takes hundreds of devices away one by one."""


def running_inside(record: Record) -> list[int]:
    """Processes in the testbed's namespaces or marked as its own, without this one and the keeper."""
    # The kernel gives a namespace's number to a later one. While the keeper lives, they are certainly ours.
    inodes = {place.inode for place in record.places} if record.alive else set()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), record.keeper):
            continue
        with suppress(OSError):
            if os.stat(entry / "ns" / "net").st_ino in inodes or _marked(entry, record.identity):
                found.append(int(entry.name))
    return sorted(found)


def _marked(process: Path, identity: str) -> bool:
    return f"{MARK}={identity}".encode() in (process / "environ").read_bytes().split(b"\0")


def take_down(files: Files) -> Record | None:
    """End and forget a testbed, in whatever state it is; None if there is none. RunError if a process will not die."""
    record = files.read()
    if record is None:
        return None
    keeper = [record.keeper] if record.alive and record.keeper != os.getpid() else []
    # The keeper last: while it lives, a guest is known by its namespace; after that only by its environment, which
    # is empty for a moment whenever a program is started.
    stubborn = end_guests(record) + end_all(keeper)
    if stubborn:
        raise RunError(f"the testbed {files.name!r} is not down: process {stubborn[0]} does not end")
    files.remove()
    return record


def end_guests(record: Record) -> list[int]:
    """End what runs inside, then what that started while it was dying; those that do not end."""
    return end_all(running_inside(record)) + end_all(running_inside(record))


def end_all(processes: list[int]) -> list[int]:
    """End them, politely at first; those that are still there after the deadline."""
    with ExitStack() as stack:
        handles = {}
        for process in processes:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(process)
                stack.callback(os.close, handle)
                handles[handle] = process
        left = set(handles)
        for number, patience_s in ((signal.SIGTERM, PATIENCE_S), (signal.SIGKILL, DEADLINE_S)):
            for handle in left:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
            left = _still_there(left, patience_s)
        return sorted(handles[handle] for handle in left)


def _still_there(handles: set[int], patience_s: float) -> set[int]:
    until = time.monotonic() + patience_s
    left = set(handles)
    while left and (wait := until - time.monotonic()) > 0:
        ended, _, _ = select.select(list(left), [], [], wait)
        left -= set(ended)
    return left
