"""Network and user namespaces, through the C library: Python has no calls for them before 3.12.

A namespace here has no name: it lives as long as a process or an open file of it, so a process that dies leaves none.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geotrain.errors import RunError

_NEW_NET, _NEW_USER = 0x40000000, 0x10000000
_TIMER_SLACK = 29
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def own_network() -> int:
    """An open file of the network namespace this process is in."""
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def new_network() -> int:
    """Move into a new network namespace; an open file of it."""
    _call("unshare", _NEW_NET)
    return own_network()


def enter(network: int) -> None:
    """Move into the namespace of that open file."""
    _call("setns", network, _NEW_NET)


@contextmanager
def inside(network: int) -> Iterator[None]:
    """Be in that namespace for a while."""
    before = own_network()
    try:
        enter(network)
        yield
    finally:
        enter(before)
        os.close(before)


def leave_the_host() -> bool:
    """Move out of the machine's network; True if that took a user namespace of our own. RunError if neither works."""
    try:
        os.close(new_network())
        return False
    except OSError as refused:
        if refused.errno not in (errno.EPERM, errno.ENOSPC):
            raise
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEW_USER | _NEW_NET)
        # Without root, a process may only map itself, and only after it has given up setgroups.
        with suppress(FileNotFoundError):
            Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError as refused:
        raise RunError(
            "a testbed needs root, or user namespaces for everybody, and this machine grants neither"
            f" ({refused.strerror or refused})"
        ) from None
    return True


def wake_up_on_time() -> None:
    """Have the kernel end this process's waits within a microsecond; it takes fifty otherwise."""
    _libc.prctl(_TIMER_SLACK, 1000, 0, 0, 0)


def set_sysctl(name: str, value: str) -> None:
    """Set a kernel parameter of the namespace this process is in, if the kernel has it and lets a namespace set it."""
    with suppress(FileNotFoundError, PermissionError):
        (Path("/proc/sys") / name).write_text(value)


def get_sysctl(name: str) -> str:
    """A kernel parameter of the namespace this process is in; empty if the kernel does not have it."""
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return ""
