"""The file of `--resume`: one line for each finished point, so that what was computed once is never computed again."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from geotrain.errors import InputError
from geotrain.files import read_bytes
from geotrain.planner.whatif.grid import Point
from geotrain.planner.whatif.outcome import Outcome, outcome_json, outcome_of

_BEGIN = '{"key": "'


class Notebook:
    """Finished points by key, in memory and, with a path, in a file. A line that a crash cut short is dropped."""

    def __init__(self, path: Path | None = None) -> None:
        """InputError if the file is not one of ours; it is then left as it is."""
        self._outcomes: dict[str, Outcome] = {}
        self._file: TextIO | None = None
        if path is None:
            return
        try:
            if path.exists():
                self._read(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def get(self, point: Point) -> Outcome | None:
        """What is known of that point."""
        return self._outcomes.get(point.key)

    def add(self, point: Point, outcome: Outcome) -> None:
        """Keep it; it is in the file when this returns."""
        self._outcomes[point.key] = outcome
        if self._file is not None:
            settings = {setting.name: setting.plain for setting in point.settings}
            line = {"key": point.key, "settings": settings, "outcome": outcome_json(outcome)}
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()

    def _read(self, path: Path) -> None:
        content = read_bytes(path)
        whole, newline, cut = content.rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if newline else (), start=1):
            try:
                entry = json.loads(line)
                self._outcomes[entry["key"]] = outcome_of(entry["outcome"])
            except (ValueError, TypeError, KeyError):
                raise InputError(f"{path}: line {number} was not written by `geotrain whatif --resume`") from None
        if cut:
            # It may end in the middle of a letter, and is ours only if it begins as ours do.
            begun = cut.decode(errors="replace")
            if not begun.startswith(_BEGIN) and not _BEGIN.startswith(begun):
                raise InputError(f"{path}: was not written by `geotrain whatif --resume`")
            os.truncate(path, len(content) - len(cut))
