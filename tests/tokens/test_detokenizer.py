from collections.abc import Sequence

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from geotrain.tokens.detokenizer import Detokenizer
from geotrain.tokens.tokenizer import Tokenizer

BYTES = Tokenizer.train(["the sea, the open sea: größer, 海\n"], vocab_size=280)
PIECES = ["</s>", "▁the", "▁sea", "▁"]


def _sentence_piece() -> Tokenizer:
    known = [*PIECES, *(f"<0x{byte:02X}>" for byte in range(256))]
    inner = tokenizers.Tokenizer(models.BPE({token: number for number, token in enumerate(known)}, []))
    spaces = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(spaces)
    return Tokenizer(inner, "", end_id=0)


SENTENCES = _sentence_piece()


def in_sentence_piece(text: str) -> list[int]:
    ids: list[int] = []
    for word in text.split(" "):
        known = "▁" + word in PIECES[1:3]
        ids += [PIECES.index("▁" + word)] if known else [3, *(len(PIECES) + byte for byte in word.encode())]
    return ids


def told(tokenizer: Tokenizer, before: Sequence[int], after: Sequence[int]) -> list[str]:
    words = Detokenizer(tokenizer, before)
    return [*map(words.add, after), words.rest()]


TEXTS = st.lists(st.sampled_from(["a", " ", "\n", "é", "海", "😀", "the", "sea"]), max_size=40).map("".join)


@given(st.text(), st.text())
def test_pieces_add_up_to_the_text(before: str, after: str):
    assert "".join(told(BYTES, BYTES.encode(before), BYTES.encode(after))) == after


@given(TEXTS, TEXTS)
@pytest.mark.parametrize(
    ("tokenizer", "encode"), [(BYTES, BYTES.encode), (SENTENCES, in_sentence_piece)], ids=["bytes", "sentence piece"]
)
def test_no_half_characters(tokenizer: Tokenizer, encode, before: str, after: str):
    ids = encode(before), encode(after)
    pieces = told(tokenizer, *ids)
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == tokenizer.decode(ids[0] + ids[1])[len(tokenizer.decode(ids[0])) :]
    assert pieces[-1] == ""


@given(TEXTS, st.integers(0, 60))
def test_a_prompt_may_end_in_the_middle_of_a_character(text: str, cut: int):
    ids = BYTES.encode(text)
    rest = "".join(told(BYTES, ids[:cut], ids[cut:]))
    assert text.endswith(rest)
    assert len(rest) >= len(text) - len(BYTES.decode(ids[:cut]))


@given(st.lists(st.integers(1, 256), max_size=100))
def test_bytes_that_are_no_text_show_as_the_tokenizer_shows_them(ids: list[int]):
    assert "".join(told(BYTES, [], ids)) == BYTES.decode(ids)


def test_endless_nonsense_is_told_and_takes_no_memory():
    (half, *_) = BYTES.encode("😀")
    words = Detokenizer(BYTES)
    text = "".join(words.add(half) for _ in range(1000))
    assert 990 < len(text) <= 1000
    assert len(words._tokens) < 40
