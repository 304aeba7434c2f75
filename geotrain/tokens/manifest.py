"""What tokens.json says about the data set that it lies in.

DIR/tokens.bin       token ids one after the other, little endian; the end-of-text token after each document
DIR/tokens.json      this document
DIR/tokenizer.json   the tokenizer that made them, as the package tokenizers writes it
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field

from geotrain.errors import InputError
from geotrain.files import Document, Whole, read_text

TOKENS, MANIFEST, TOKENIZER = FILES = ("tokens.bin", "tokens.json", "tokenizer.json")

Dtype = Literal["uint16", "uint32"]
_Count = Annotated[Whole, Field(ge=1)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(Document):
    """A data set's figures and checksums."""

    format: Literal[1]
    """Version of these three files."""
    dtype: Dtype
    num_tokens: _Count
    """With the end-of-text tokens."""
    num_documents: _Count
    vocab_size: _Count
    """One more than the largest id that the tokenizer knows."""
    end_id: Annotated[Whole, Field(ge=0)]
    """The end-of-text token."""
    tokens_sha256: _Sha256
    tokenizer_sha256: _Sha256

    @classmethod
    def of(cls, directory: Path) -> Self:
        """The manifest of a data set whose tokenizer is the one that made it."""
        if not os.path.exists(directory / MANIFEST):
            raise InputError(f"{directory}: is not a data set: it has no {MANIFEST}; `geotrain data` makes one")
        manifest = cls.load(directory / MANIFEST)
        if sha256(read_text(directory / TOKENIZER).encode()).hexdigest() != manifest.tokenizer_sha256:
            raise InputError(f"{directory / TOKENIZER}: is not the tokenizer that made {TOKENS}: other checksum")
        return manifest

    def text(self) -> str:
        """The file."""
        return json.dumps(self.dump(), indent=2) + "\n"


def dtype_for(vocab_size: int) -> Dtype:
    """The smaller one that holds every id."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def stored(dtype: Dtype) -> np.dtype[np.unsignedinteger]:
    """How a token lies in tokens.bin."""
    return np.dtype(dtype).newbyteorder("<")
