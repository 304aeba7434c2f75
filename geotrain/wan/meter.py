"""How busy this process and its machine are: a rate means little where there was no CPU left."""

import time
from pathlib import Path

_STAT = Path("/proc/stat")


class Meter:
    """Runs from the moment it is made."""

    def __init__(self) -> None:
        self._since = time.monotonic(), time.process_time(), _ticks()

    def cores(self) -> float:
        """CPU seconds per second that this process took; Python's threads share about one."""
        start_s, cpu_s, _ = self._since
        return (time.process_time() - cpu_s) / max(1e-6, time.monotonic() - start_s)

    def machine(self) -> float:
        """The share of all cores that somebody used; 0 where the system does not tell."""
        (busy, total), (before_busy, before_total) = _ticks(), self._since[2]
        return (busy - before_busy) / (total - before_total) if total > before_total else 0.0


def _ticks() -> tuple[int, int]:
    """Busy and all, of all cores since the machine started."""
    try:
        words = _STAT.read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0, 0
    ticks = [int(word) for word in words]
    idle = sum(ticks[3:5])
    return sum(ticks) - idle, sum(ticks)
