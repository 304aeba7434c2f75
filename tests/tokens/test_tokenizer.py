from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from geotrain.errors import InputError
from geotrain.tokens import Dataset
from geotrain.tokens.tokenizer import END, Tokenizer

TRAINED = Tokenizer.train(["the sea, the sea, the open sea"] * 9, vocab_size=280)


def foreign(path: Path, *words: str) -> tokenizers.Tokenizer:
    """Somebody's tokenizer.json: each word a token."""
    made = tokenizers.Tokenizer(WordLevel({word: id for id, word in enumerate(words)}, unk_token=words[0]))
    made.pre_tokenizer = Whitespace()
    made.save(str(path))
    return made


@given(st.text())
def test_any_text_comes_back(text: str):
    assert TRAINED.decode(TRAINED.encode(text)) == text


def test_the_vocabulary_is_the_end_every_byte_and_what_the_text_repeats():
    assert (TRAINED.end_id, TRAINED.decode([TRAINED.end_id])) == (0, END)
    assert 257 < TRAINED.vocab_size <= 280
    assert len(TRAINED.encode("the sea")) == 2
    assert len(TRAINED.encode("\N{SNOWMAN}")) == 3


def test_the_same_text_gives_the_same_vocabulary():
    text = Path(tokenizers.__file__).read_text()
    assert Tokenizer.train([text], vocab_size=300).json == Tokenizer.train([text], vocab_size=300).json


def test_the_name_of_the_end_in_a_text_is_not_the_end():
    ids = TRAINED.encode(f"a{END}b")
    assert TRAINED.end_id not in ids
    assert TRAINED.decode(ids) == f"a{END}b"


def test_a_data_set_has_its_tokenizer(dataset: Dataset):
    tokenizer = Tokenizer.load(dataset.directory)
    assert (tokenizer.vocab_size, tokenizer.end_id) == (dataset.manifest.vocab_size, dataset.manifest.end_id)
    assert tokenizer.decode(tokenizer.encode("the open sea")) == "the open sea"


@pytest.mark.parametrize("end", [END, "</s>", "<|end_of_text|>", "<eos>"])
def test_the_usual_names_of_the_end_are_known(tmp_path: Path, end: str):
    foreign(tmp_path / "tokenizer.json", "?", "sea", end)
    tokenizer = Tokenizer.read(tmp_path / "tokenizer.json")
    assert (tokenizer.vocab_size, tokenizer.end_id, tokenizer.encode("sea land")) == (3, 2, [1, 0])


def test_an_unusual_name_of_the_end_must_be_given(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    foreign(path, "?", "sea", "STOP")
    assert Tokenizer.read(path, end="STOP").end_id == 2
    with pytest.raises(
        InputError, match=r"has no token '<\|endoftext\|>' or .*; --end names the token that ends a text"
    ):
        Tokenizer.read(path)
    with pytest.raises(InputError, match="has no token 'HALT'; --end names"):
        Tokenizer.read(path, end="HALT")


def test_ids_with_gaps_count_up_to_the_largest(tmp_path: Path):
    made = tokenizers.Tokenizer(WordLevel({"?": 0, END: 7}, unk_token="?"))
    made.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.read(tmp_path / "tokenizer.json").vocab_size == 8


def test_a_tokenizer_that_cuts_and_pads_does_neither_here(tmp_path: Path):
    made = foreign(tmp_path / "tokenizer.json", "?", "sea", END)
    made.enable_truncation(4)
    made.enable_padding(length=4)
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.read(tmp_path / "tokenizer.json")
    assert [len(ids) for ids in tokenizer.encode_all(["sea " * 9, "sea"])] == [9, 1]


@pytest.mark.parametrize("content", ["", "{}", "[1, 2]", "hello"])
def test_what_is_no_tokenizer_is_one_sentence(tmp_path: Path, content: str):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"tokenizer\.json: is not a tokenizer\.json: "):
        Tokenizer.read(path)
