"""What a service leaves behind: a line for every piece of prefill, every step of training and every look at windows."""

import json
from pathlib import Path
from typing import IO, Any

from geotrain.errors import InputError
from geotrain.serving.messages import Report, Windows


class Journal:
    """JSON lines; times are the machine's monotonic clock. None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a", encoding="utf-8")
            except OSError as error:
                raise InputError(f"{path}: cannot be written: {error.strerror}") from None

    def worked(self, name: str, report: Report) -> None:
        """A chunk is through a slot."""
        self._write("work", slot=name, booking=report.booking, chunk=report.chunk, pieces=report.pieces)

    def stepped(self, number: int, begin_s: float) -> None:
        """Training has begun a step."""
        self._write("step", number=number, begin_s=begin_s)

    def watched(self, name: str, windows: Windows) -> None:
        """A slot's idle time so far, and what became of it."""
        self._write("windows", slot=name, **windows.model_dump(exclude={"kind"}))

    def close(self) -> None:
        """No more."""
        if self._file is not None:
            self._file.close()

    def _write(self, what: str, **fields: Any) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps({"what": what, **fields}) + "\n")
            self._file.flush()
        except OSError:
            # A full disk ends the journal, not the service.
            self._file = None
