"""A data set on disk, read in place: windows of consecutive tokens."""

import os
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from geotrain.errors import InputError, RunError
from geotrain.files import open_regular
from geotrain.tokens.manifest import TOKENS, Manifest, stored


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Memory-mapped tokens; many processes of a machine share one copy."""

    directory: Path
    manifest: Manifest
    tokens: NDArray[np.unsignedinteger]

    @classmethod
    def open(cls, directory: Path, *, model_vocab: int | None = None) -> Self:
        """The data set in `directory`; InputError if a file is missing or cut short, or the vocabulary too large."""
        manifest = Manifest.of(directory)
        if model_vocab is not None and model_vocab < manifest.vocab_size:
            raise InputError(
                f"{directory}: has a vocabulary of {manifest.vocab_size}, more than the model's vocab of {model_vocab}"
            )
        path, item = directory / TOKENS, stored(manifest.dtype)
        try:
            with open_regular(path) as file:
                size_bytes, expected_bytes = os.fstat(file.fileno()).st_size, manifest.num_tokens * item.itemsize
            if size_bytes != expected_bytes:
                raise InputError(
                    f"{path}: has {size_bytes} bytes, but its {manifest.num_tokens} tokens take {expected_bytes}"
                )
            tokens = np.memmap(path, dtype=item, mode="r")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        return cls(directory=directory, manifest=manifest, tokens=tokens)

    @property
    def fingerprint(self) -> str:
        """Equal for equal tokens, wherever they lie."""
        return self.manifest.tokens_sha256

    def verify(self) -> None:
        """Read it all; InputError if it is not what was written."""
        with open_regular(self.directory / TOKENS) as file:
            if file_digest(file, "sha256").hexdigest() != self.manifest.tokens_sha256:
                raise InputError(f"{self.directory / TOKENS}: is damaged: its checksum is not the one that was written")

    def windows(self, sequence: int) -> int:
        """How many windows of `sequence` + 1 tokens there are; neighbours share one token: each is predicted once."""
        return (len(self.tokens) - 1) // sequence

    def window(self, index: int, sequence: int) -> NDArray[np.int64]:
        """The tokens of one window."""
        start = index * sequence
        window = self.tokens[start : start + sequence + 1].astype(np.int64)
        if window.max() >= self.manifest.vocab_size:
            where = f"{self.directory / TOKENS}: is damaged near token {start}"
            raise RunError(f"{where}: {window.max()} is not in its vocabulary of {self.manifest.vocab_size}")
        return window
