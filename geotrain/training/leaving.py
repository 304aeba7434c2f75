"""How a process takes leave of the others."""

from collections.abc import Callable
from contextlib import ExitStack

_PATIENCE_S = 5.0


class Leaving:
    """What is to be closed, last first: with patience when all went well, at once when something failed."""

    def __init__(self) -> None:
        self.patience_s = _PATIENCE_S
        self._stack = ExitStack()

    def then(self, close: Callable[[float], object]) -> None:
        """Close this too; it is told how long it may take."""
        self._stack.callback(lambda: close(self.patience_s))

    def leave(self) -> None:
        """Close everything, once."""
        self._stack.close()
