"""What an experiment finds: one number each, and how a reader gets it again."""

import shlex
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from geotrain.files import Document

FILES = "{files}"
"""Stands in a command for the directory that holds the experiment's files."""

Value = str | float


@dataclass(frozen=True, kw_only=True)
class Source:
    """A command that prints a figure, and the files it reads."""

    command: str
    files: Mapping[str, Document] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One number."""

    row: Mapping[str, Value]
    """The setting it was found at."""
    figure: str
    value: float
    unit: str = ""
    sources: tuple[Source, ...] = ()
    """Several for a ratio: the first one's figure over the second one's."""
    seed: int | None = None
    """None where nothing is left to chance."""
    samples: tuple[float, ...] = ()
    """Of a measured number: every repetition; the value is their median."""

    @property
    def measured(self) -> bool:
        """By a clock, so another run finds another number."""
        return bool(self.samples)

    def dump(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "row": dict(self.row),
            "figure": self.figure,
            "value": self.value,
            "unit": self.unit,
            "commands": [source.command for source in self.sources],
            "seed": self.seed,
            "samples": list(self.samples),
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Finding":
        """What `dump` made; the files are on disk already."""
        sources = tuple(Source(command=command) for command in data["commands"])
        rest = {name: data[name] for name in ("row", "figure", "value", "unit", "seed")}
        return cls(**rest, sources=sources, samples=tuple(data["samples"]))

    def at(self, directory: str) -> "Finding":
        """With commands that read their files there."""
        placed = tuple(replace(one, command=one.command.replace(FILES, directory)) for one in self.sources)
        return replace(self, sources=placed)


def measured(samples: tuple[float, ...], **fields: Any) -> Finding:
    """A number that was measured several times."""
    return Finding(value=statistics.median(samples), samples=samples, **fields)


def command(*words: object, read: str) -> str:
    """A geotrain command that prints JSON, and what is read of it; files are named with `file_of`."""
    return f"geotrain {' '.join(_quoted(str(word)) for word in words)} --json | jq {shlex.quote(read)}"


def _quoted(word: str) -> str:
    return word if word.startswith(FILES) else shlex.quote(word)


def file_of(name: str) -> str:
    """How a command names one of the experiment's files."""
    return f"{FILES}/{name}"


def name_of(row: Mapping[str, Value]) -> str:
    """A file name for a setting."""
    said = "-".join(f"{key}-{value:g}" if isinstance(value, float | int) else str(value) for key, value in row.items())
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in said.replace(" ", "-")).lower()
