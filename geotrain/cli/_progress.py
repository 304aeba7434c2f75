"""The line on stderr that says how far a search has come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from geotrain.planner import Progress


class Line:
    """Elapsed, plans simulated, the best so far, and how much better another can be; redrawn while it waits."""

    def __init__(self) -> None:
        self.what = "planning"
        self._latest: Progress | None = None
        self._started = monotonic()

    def watch(self, progress: Progress) -> None:
        """Take in the latest."""
        self._latest = progress

    def begin(self, what: str) -> None:
        """Another search starts."""
        self.what, self._latest, self._started = what, None, monotonic()

    def __rich__(self) -> Text:
        from rich.text import Text

        from geotrain.reports.words import count
        from geotrain.units import format_seconds

        parts = [f"{self.what} {monotonic() - self._started:.0f} s"]
        if self._latest is not None:
            parts.append(f"{self._latest.evaluations} simulated")
            if self._latest.best is not None:
                result = self._latest.best.result
                parts.append(f"best {format_seconds(result.step_time_s)}, {count(result.tokens_per_s)} tokens/s")
                parts.append(f"gap {self._latest.gap:.1%}")
        return Text(" · ".join(parts) + " (Ctrl-C: take the best so far)", no_wrap=True, overflow="ellipsis")


@contextmanager
def shown(*, wanted: bool) -> Iterator[Line]:
    """The line, on a terminal; elsewhere it is kept to itself."""
    from rich.console import Console
    from rich.live import Live

    line, console = Line(), Console(stderr=True)
    if not (wanted and console.is_terminal):
        yield line
        return
    with Live(line, console=console, transient=True, refresh_per_second=4):
        yield line
