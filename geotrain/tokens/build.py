"""Making a data set: texts through a tokenizer into a directory that appears when it is complete."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np

from geotrain.errors import InputError, RunError
from geotrain.files import place_of
from geotrain.tokens.manifest import FILES, MANIFEST, TOKENIZER, TOKENS, Manifest, dtype_for, stored
from geotrain.tokens.texts import Piece, Texts, Watch
from geotrain.tokens.tokenizer import Tokenizer

SAMPLE_BYTES = 128 << 20
"""A vocabulary is learned from about so much, spread evenly over the text."""
_BATCH_CHARS = 1 << 22


def check_target(directory: Path, *, force: bool) -> None:
    """InputError unless `directory` is free, or holds a data set or nothing and may be replaced."""
    if not os.path.exists(directory):
        return
    if not force:
        raise InputError(f"{directory}: exists already; --force replaces it")
    if not os.path.isdir(directory) or set(os.listdir(directory)) - set(FILES):
        raise InputError(f"{directory}: is not a data set, so --force does not replace it")


def learn(texts: Texts, *, vocab_size: int, watch: Watch) -> Tokenizer:
    """A vocabulary for these texts."""
    stride = -(-texts.size_bytes // SAMPLE_BYTES)

    def sample() -> Iterator[str]:
        done_bytes = 0
        for piece in islice(texts.pieces(), 0, None, stride):
            done_bytes += piece.size_bytes
            watch("learning a vocabulary", done_bytes, texts.size_bytes // stride)
            yield piece.text
        watch("merging tokens", done_bytes, None)

    return Tokenizer.train(sample(), vocab_size=vocab_size)


def build(texts: Texts, tokenizer: Tokenizer, directory: Path, *, force: bool = False, watch: Watch) -> Manifest:
    """Write the data set as a whole or not at all."""
    check_target(directory, force=force)
    with _appearing(directory) as partial:
        manifest = _write_tokens(partial / TOKENS, texts, tokenizer, watch)
        (partial / TOKENIZER).write_bytes(tokenizer.json.encode())
        (partial / MANIFEST).write_text(manifest.text(), encoding="utf-8")
    return manifest


def _write_tokens(path: Path, texts: Texts, tokenizer: Tokenizer, watch: Watch) -> Manifest:
    dtype = dtype_for(tokenizer.vocab_size)
    item = stored(dtype)
    digest = sha256()
    num_tokens = done_bytes = 0
    with path.open("wb") as file:
        for batch in _batches(texts.pieces()):
            for piece, ids in zip(batch, tokenizer.encode_all([piece.text for piece in batch]), strict=True):
                block = np.array([*ids, tokenizer.end_id] if piece.is_last else ids, dtype=item).tobytes()
                file.write(block)
                digest.update(block)
                num_tokens += len(block) // item.itemsize
                done_bytes += piece.size_bytes
            watch("tokenizing", done_bytes, texts.size_bytes)
        # Some disks say only here that they are full.
        file.flush()
        os.fsync(file.fileno())
    return Manifest(
        format=1,
        dtype=dtype,
        num_tokens=num_tokens,
        num_documents=len(texts.files),
        vocab_size=tokenizer.vocab_size,
        end_id=tokenizer.end_id,
        tokens_sha256=digest.hexdigest(),
        tokenizer_sha256=sha256(tokenizer.json.encode()).hexdigest(),
    )


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Enough at a time to keep all cores busy, little enough to hold in memory."""
    batch: list[Piece] = []
    chars = 0
    for piece in pieces:
        batch.append(piece)
        chars += len(piece.text)
        if chars >= _BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


@contextmanager
def _appearing(directory: Path) -> Iterator[Path]:
    """A new directory beside `directory` that takes its name at the end; after a failure nothing is left of it."""
    target = place_of(directory)
    partial, old = (target.with_name(f"{target.name}.{word}-{os.getpid()}") for word in ("partial", "old"))
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror}") from None
    try:
        yield partial
        if target.exists():
            target.rename(old)
        partial.rename(target)
    except OSError as error:
        raise RunError(f"{directory}: cannot be written: {error.strerror}") from None
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
