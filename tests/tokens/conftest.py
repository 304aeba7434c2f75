"""A little text, and a data set made of it."""

from pathlib import Path

import pytest

from geotrain.tokens import Dataset
from geotrain.tokens.build import build, learn
from geotrain.tokens.texts import Texts, Tree, find_texts


def silent(what: str, done_bytes: int, total_bytes: int | None) -> None:
    """Watches nothing."""


def found(path: Path, glob: str = "*") -> Texts:
    return find_texts([Tree(path=path, glob=glob)], avoid=path / "data", watch=silent)


@pytest.fixture
def poems(tmp_path: Path) -> Path:
    """Three documents."""
    directory = tmp_path / "poems"
    directory.mkdir()
    (directory / "a.txt").write_text("the sea, the sea, the open sea\n" * 20)
    (directory / "b.txt").write_text("Über allen Gipfeln ist Ruh\n")
    (directory / "c.txt").write_text("no newline at the end, and a <|endoftext|> that is text")
    return directory


@pytest.fixture
def dataset(poems: Path, tmp_path: Path) -> Dataset:
    texts = found(poems)
    build(texts, learn(texts, vocab_size=300, watch=silent), tmp_path / "data", watch=silent)
    return Dataset.open(tmp_path / "data")
