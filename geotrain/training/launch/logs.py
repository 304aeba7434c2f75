"""Logs of processes: each start of one begins with a line of `entry.py`."""

import re
from pathlib import Path

_START = re.compile(r"^=== process (\d+), attempt \d+\n", re.MULTILINE)


class Tail:
    """What has come to a log since it was last read, or since this object was made; in whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> str:
        """Without the lines that say that a process starts."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self._position)
            lines, newline, _ = file.read().rpartition(b"\n")
        self._position += len(lines) + len(newline)
        return _START.sub("", (lines + newline).decode(errors="replace"))


def last_part(path: Path, process: int | None = None) -> str:
    """What a process has said: the one of this number, for which another may have been started since, or the latest."""
    parts = _START.split(_text(path))
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(str(process), parts[-1])


def last_process(path: Path) -> int | None:
    """The number of that process."""
    starts = _START.findall(_text(path))
    return int(starts[-1]) if starts else None


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
