"""A small data set of text that is always there: this package's own sources."""

from pathlib import Path

import geotrain
from geotrain.tokens.build import build, learn
from geotrain.tokens.texts import Tree, find_texts

VOCAB = 300


def dataset(directory: Path) -> Path:
    """Make it."""
    package = Path(geotrain.__file__).parent
    out = directory / "data"
    texts = find_texts(
        [Tree(path=package / name, glob="*.py") for name in ("cluster", "workload")], avoid=out, watch=_unwatched
    )
    build(texts, learn(texts, vocab_size=VOCAB, watch=_unwatched), out, watch=_unwatched)
    return out


def _unwatched(what: str, done_bytes: int, total_bytes: int | None) -> None: ...
