"""Changing a file the way a person would, one piece of text at a time."""

from pathlib import Path


def replace(path: Path, old: str, new: str) -> None:
    """Replace the one place where `old` stands."""
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new))
