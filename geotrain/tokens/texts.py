"""Finding and reading text: files below directories, in sorted order, in pieces of bounded size.

A file is a document. A text is what decodes as UTF-8 and has no NUL; all else is skipped and counted.
"""

import codecs
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import TextIOWrapper
from pathlib import Path

from geotrain.errors import InputError, RunError
from geotrain.files import open_regular, place_of

Watch = Callable[[str, int, int | None], None]
"""Told what is being done, bytes of text done, and bytes in all where that is known."""
PIECE_CHARS = 1 << 17
_BLOCK_BYTES = 1 << 20
# Between a word and the space after it: tokenizers split there anyway, so the tokens are those of the whole.
_LAST_CUT = re.compile(r".*[^\W_](?= )", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A file, or those below a directory; hidden ones are left out."""

    path: Path
    glob: str = "*"
    """For names of files below a directory."""
    without: frozenset[str] = frozenset()
    """Names of directories that are not entered."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document."""

    text: str
    is_last: bool

    @property
    def size_bytes(self) -> int:
        return len(self.text.encode())


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The documents that were found."""

    files: tuple[Path, ...]
    size_bytes: int
    skipped: Counter[str]
    """Files by the reason why they were left out."""

    def pieces(self) -> Iterator[Piece]:
        """All documents in order, piece by piece."""
        for path in self.files:
            yield from read_pieces(path)


def standard_library() -> Tree:
    """Text that every machine has: the sources of Python's standard library, without its tests."""
    without = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})
    return Tree(path=Path(sysconfig.get_path("stdlib")), glob="*.py", without=without)


def find_texts(trees: Sequence[Tree], *, avoid: Path, watch: Watch) -> Texts:
    """Look at every file once; InputError if one cannot be read or none is text. `avoid` is a directory not entered."""
    files: list[Path] = []
    skipped: Counter[str] = Counter()
    size_bytes = 0
    for tree in trees:
        for path in _walk(tree, place_of(avoid), skipped):
            with _reading(path):
                fault = _fault(path)
                if fault is not None:
                    skipped[fault] += 1
                    continue
                files.append(path)
                size_bytes += path.stat().st_size
            watch("looking for text", size_bytes, None)
    if not files:
        where = ", ".join(str(tree.path) for tree in trees)
        seen = "".join(f", {number} {reason}" for reason, number in (+skipped).items())
        raise InputError(f"{where}: no text found{seen}")
    return Texts(files=tuple(files), size_bytes=size_bytes, skipped=+skipped)


def read_pieces(path: Path, *, piece_chars: int = PIECE_CHARS) -> Iterator[Piece]:
    """The document, cut between words where that is possible, else between lines, else anywhere."""
    with _reading(path), open_regular(path) as raw, TextIOWrapper(raw, encoding="utf-8", newline="") as file:
        held = ""
        while block := file.read(piece_chars):
            held += block
            if len(held) > piece_chars:
                cut = _cut(held)
                yield Piece(held[:cut], is_last=False)
                held = held[cut:]
        yield Piece(held, is_last=True)


def _cut(text: str) -> int:
    neat = _LAST_CUT.match(text)
    return neat.end() if neat else text.rfind("\n") + 1 or len(text)


def _walk(tree: Tree, avoid: Path, skipped: Counter[str]) -> Iterator[Path]:
    if os.path.isfile(tree.path):
        yield tree.path
        return
    if not os.path.isdir(tree.path):
        fault = "is neither a file nor a directory" if os.path.exists(tree.path) else "no such file or directory"
        raise InputError(f"{tree.path}: {fault}")
    for directory, names, files in os.walk(tree.path, onerror=_refuse):
        here = Path(directory)
        skipped["hidden"] += sum(name.startswith(".") for name in (*names, *files))
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".") and name not in tree.without and (here / name).resolve() != avoid
        )
        for name in sorted(files):
            if not name.startswith(".") and fnmatchcase(name, tree.glob):
                yield here / name


def _fault(path: Path) -> str | None:
    """Why this is no text."""
    if not path.is_file():
        return "not a regular file"
    decoder = codecs.getincrementaldecoder("utf-8")()
    empty = True
    with open_regular(path) as file:
        try:
            while block := file.read(_BLOCK_BYTES):
                empty = False
                if b"\0" in block:
                    return "not UTF-8 text"
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "not UTF-8 text"
    return "empty" if empty else None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RunError(f"{path}: changed while it was read and is no longer UTF-8 text") from None


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be read: {error.strerror}")
