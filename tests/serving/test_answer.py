from typing import Any

from geotrain.serving.answer import Answer
from geotrain.serving.contract import Piece, Sampling
from tests.serving.prefilling import WORDS

END = WORDS.end_id


def answer(**sampling: Any) -> Answer:
    return Answer(WORDS, WORDS.encode("the "), Sampling(**{"max_tokens": 100} | sampling), stop_ids={END})


def told(answer: Answer, tokens: list[int]) -> list[tuple[str, str | None]]:
    """Up to and with the piece that ends it."""
    pieces: list[Piece] = []
    while not pieces or pieces[-1].finish is None:
        pieces.append(answer.add(tokens[len(pieces)]))
    assert [piece.token for piece in pieces] == tokens[: len(pieces)]
    return [(piece.text, piece.finish) for piece in pieces]


def test_a_token_that_ends_a_text_is_no_text():
    assert told(answer(), [*WORDS.encode("sea"), END, 7]) == [("sea", None), ("", "stop")]


def test_a_string_ends_it_in_the_middle_of_a_token():
    found = told(answer(stop=("a, th",)), WORDS.encode("the sea, the open sea"))
    assert "".join(text for text, _ in found) == "the se"
    assert found[-1] == ("", "stop")
    assert all(finish is None for _, finish in found[:-1])


def test_the_last_token_allowed_brings_what_was_held_back():
    tokens = [*WORDS.encode("sea"), *WORDS.encode("😀")]
    found = told(answer(max_tokens=len(tokens) - 1, stop=("a😀",)), tokens)
    assert found == [("se", None), *[("", None)] * (len(tokens) - 3), ("a\ufffd", "length")]


def test_a_string_that_the_last_token_completes_is_a_stop():
    tokens = WORDS.encode("sea")
    assert told(answer(max_tokens=len(tokens), stop=("sea",)), tokens)[-1] == ("", "stop")


def test_no_character_is_told_before_it_is_whole():
    tokens = [token for sign in "😀é海" for token in WORDS.encode(sign)]
    found = [answer_piece.text for answer_piece in map(answer().add, tokens)]
    assert len(tokens) > 5
    assert [text for text in found if text] == ["😀", "é", "海"]
