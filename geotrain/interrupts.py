"""Ctrl-C in a command that searches: what was found so far is shown, and the command ends with exit code 130.

Python raises KeyboardInterrupt wherever it happens to be. In a destructor, or in a callback from compiled code, that is
lost; and a search that keeps the best so far must not be taken for one that came to its end. So it is remembered, and
searches ask for it before each simulation.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Memory:
    """Whether a search listens for Ctrl-C, and whether it came since the command began."""

    listening = False
    asked = False


@contextmanager
def remembered() -> Iterator[None]:
    """Listen for Ctrl-C in here: `asked` tells of it afterwards, `check` raises it again where it was lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        remember()
        signal.default_int_handler(number, frame)

    def tell(lost: "sys.UnraisableHookArgs") -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            hook(lost)

    hook, sys.unraisablehook = sys.unraisablehook, tell
    before = signal.signal(signal.SIGINT, ask)
    _Memory.listening = True
    try:
        yield
    finally:
        _Memory.listening = False
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook


def forget() -> None:
    """A command begins: nothing came yet."""
    _Memory.asked = False


def remember() -> None:
    """Ctrl-C came."""
    _Memory.asked = True


def asked() -> bool:
    """Whether Ctrl-C came since the command began."""
    return _Memory.asked


def is_interrupt(error: BaseException) -> bool:
    """Tell whether the error is Ctrl-C, or a SystemError that numba's compiled code made of it."""
    cause: BaseException | None = error
    while isinstance(cause, SystemError):
        cause = cause.__cause__
    return isinstance(cause, KeyboardInterrupt)


def check() -> None:
    """KeyboardInterrupt if Ctrl-C came while it is remembered: to be asked before each longer piece of work."""
    if _Memory.listening and _Memory.asked:
        raise KeyboardInterrupt
