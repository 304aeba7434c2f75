import sys
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from geotrain.cli.generate import pieces
from geotrain.model import Config, Part, generate, weights
from geotrain.tokens.tokenizer import Tokenizer
from tests.model.tiny import config, filled

WORDS = Tokenizer.train(["the sea, the open sea: größer, 海\n"], vocab_size=280)


def write(directory: Path, **changes: object) -> Part:
    """A model as `geotrain train` leaves it."""
    directory.mkdir(parents=True)
    part = filled(config(vocab_size=WORDS.vocab_size, **changes))
    weights.save(directory, part.config, part.named_parameters())
    (directory / "tokenizer.json").write_text(WORDS.json)
    return part


def test_the_text_goes_on_as_the_model_says(geotrain, tmp_path: Path):
    part = write(tmp_path / "run" / "model")
    ids = WORDS.encode("the ")
    expected = list(generate(part, ids, max_new_tokens=9, temperature=0.7, top_p=0.9, seed=3, stop=[WORDS.end_id]))
    asked = "the ", "--max-tokens", 9, "--temperature", 0.7, "--top-p", 0.9, "--seed", 3
    answer = geotrain("generate", tmp_path / "run", *asked, "--json")
    assert answer.json == {
        "model": str(tmp_path / "run" / "model"),
        "prompt": "the ",
        "text": WORDS.decode([*ids, *expected]).removeprefix("the "),
        "tokens": expected,
        "prompt_tokens": ids,
        "ended": False,
    }
    plain = geotrain("generate", tmp_path / "run" / "model", *asked)
    assert (plain.exit_code, plain.out, plain.err) == (0, answer.json["text"] + "\n", "")


def test_a_llama_of_others_has_a_beginning_and_several_ends(geotrain, tmp_path: Path):
    part = write(tmp_path / "model", bos_token_id=5)
    ids = [5, *WORDS.encode("sea")]
    likeliest = list(generate(part, ids, max_new_tokens=8))
    ends = [WORDS.end_id, likeliest[4]]
    Config.load(tmp_path / "model" / "config.json").model_copy(update={"eos_token_id": ends}).save(
        tmp_path / "model" / "config.json"
    )
    found = geotrain("generate", tmp_path / "model", "sea", "--temperature", 0, "--max-tokens", 8, "--json").json
    assert (found["prompt_tokens"], found["ended"]) == (ids, True)
    assert found["tokens"] == likeliest[: min(likeliest.index(end) for end in ends if end in likeliest)]


def test_it_stops_where_the_model_has_no_more_room(geotrain, tmp_path: Path):
    write(tmp_path / "model", max_position_embeddings=6, eos_token_id=None)
    found = geotrain("generate", tmp_path / "model", "", "--json").json
    assert found["prompt_tokens"] == [WORDS.end_id]
    assert len(found["tokens"]) == 5 or found["ended"]


@given(before=st.text(), after=st.text())
def test_pieces_are_whole_characters_and_add_up(before: str, after: str):
    ids = WORDS.encode(before)
    told = list(pieces(WORDS, ids, WORDS.encode(after)))
    assert "".join(told) == after
    assert "\ufffd" in after or not any("\ufffd" in piece for piece in told)


def test_pieces_keep_the_spaces_and_bytes_of_a_sentence_piece_vocabulary():
    known = ["</s>", "▁the", "▁sea", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner = tokenizers.Tokenizer(
        models.BPE({token: number for number, token in enumerate(known)}, [], byte_fallback=True)
    )
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    words = Tokenizer(inner, "", end_id=0)
    emoji = [known.index(f"<0x{byte:02X}>") for byte in "😀é".encode()]
    assert list(pieces(words, [1], [2, *emoji, 1])) == [" sea", "😀", "é", " the", ""]


def test_a_model_that_diverged_is_a_failure(geotrain, tmp_path: Path):
    part = filled(config(vocab_size=WORDS.vocab_size))
    with torch.no_grad():
        part.get_parameter("model.norm.weight").fill_(float("nan"))
    (tmp_path / "tokenizer.json").write_text(WORDS.json)
    weights.save(tmp_path, part.config, part.named_parameters())
    answer = geotrain("generate", tmp_path, "sea")
    assert answer.exit_code == 1 and answer.err == (
        "error: the model's logits are not numbers: its training has diverged\n"
    )


@pytest.mark.parametrize(
    ("spoil", "arguments", "sentence"),
    [
        pytest.param("config.json", [], "model: is no model: it has neither config.json nor", id="no-config"),
        pytest.param("tokenizer.json", [], "tokenizer.json: no such file", id="no-tokenizer"),
        pytest.param("model.safetensors", [], "has neither model.safetensors nor", id="no-weights"),
        pytest.param("", ["--max-tokens", "99"], "max_new_tokens is 99 and must be 0 to", id="room"),
        pytest.param("", ["--temperature", "-1"], "temperature is -1 and must be at least 0", id="temperature"),
        pytest.param("", ["--top-p", "0"], "top_p is 0 and must be above 0", id="top-p"),
        pytest.param("", ["--seed", "-1"], "'--seed': Input should be greater than or equal to 0", id="seed"),
        pytest.param("", ["--end", "<fin>"], "has no token '<fin>'", id="end"),
    ],
)
def test_bad_input_is_one_sentence(geotrain, tmp_path: Path, spoil: str, arguments: list[str], sentence: str):
    write(tmp_path / "model")
    if spoil:
        (tmp_path / "model" / spoil).unlink()
    answer = geotrain("generate", tmp_path / "model", "sea", *arguments)
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert sentence in answer.err


def test_without_torch_it_says_what_to_install(geotrain, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = geotrain("generate", "model", "sea")
    assert (answer.exit_code, answer.err) == (
        2,
        "error: generate needs torch, safetensors and tokenizers: pip install 'geotrain[train]'\n",
    )
