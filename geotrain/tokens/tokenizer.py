"""A vocabulary: text to token ids and back; any tokenizer.json, or byte-level BPE learned from a text."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from geotrain.errors import InputError
from geotrain.files import read_text
from geotrain.tokens.manifest import TOKENIZER, Manifest

END = "<|endoftext|>"
_ENDS = (END, "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>")
"""What well-known tokenizers call the end of a text, which tokenizer.json does not say."""
_ALPHABET = pre_tokenizers.ByteLevel.alphabet()


class Tokenizer:
    """Thin cover of a `tokenizers.Tokenizer`: whole texts, nothing added, cut off or padded.

    The name of a special token that stands in a text is text like any other; only we put the end-of-text token.
    """

    def __init__(self, inner: tokenizers.Tokenizer, json: str, *, end_id: int) -> None:
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = True
        self._inner = inner
        self.json = json
        """Content of tokenizer.json."""
        self.end_id = end_id
        self.vocab_size = max(inner.get_vocab().values()) + 1

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The tokenizer of a data set."""
        manifest = Manifest.of(directory)
        return cls(*_parsed(directory / TOKENIZER), end_id=manifest.end_id)

    @classmethod
    def read(cls, path: Path, *, end: str | None = None) -> Self:
        """Any tokenizer.json; `end` names its end-of-text token where that has no usual name."""
        inner, json = _parsed(path)
        names = _ENDS if end is None else (end,)
        known = [end_id for name in names if (end_id := inner.token_to_id(name)) is not None]
        if not known:
            wanted = " or ".join(map(repr, names))
            raise InputError(f"{path}: has no token {wanted}; --end names the token that ends a text")
        return cls(inner, json, end_id=known[0])

    @classmethod
    def train(cls, texts: Iterable[str], *, vocab_size: int) -> Self:
        """Byte-level BPE: the end of text, every byte, then merged ones up to `vocab_size` or what the text has."""
        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=[END], initial_alphabet=_ALPHABET, show_progress=False
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner, inner.to_str(pretty=True) + "\n", end_id=0)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without an end."""
        return next(self.encode_all([text]))

    def encode_all(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Several texts, on all cores."""
        for encoding in self._inner.encode_batch_fast(texts, add_special_tokens=False):
            yield encoding.ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; an end-of-text token shows by its name."""
        return self._inner.decode(ids, skip_special_tokens=False)


def _parsed(path: Path) -> tuple[tokenizers.Tokenizer, str]:
    json = read_text(path)
    try:
        return tokenizers.Tokenizer.from_str(json), json
    except Exception as error:
        raise InputError(f"{path}: is not a tokenizer.json: {error}") from None
