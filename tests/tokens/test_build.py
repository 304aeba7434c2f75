from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers.models import WordLevel

from geotrain.errors import InputError, RunError
from geotrain.tokens import Dataset, Manifest
from geotrain.tokens import build as building
from geotrain.tokens.build import build, learn
from geotrain.tokens.manifest import FILES
from geotrain.tokens.tokenizer import END, Tokenizer
from tests.tokens.conftest import found, silent


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_every_document_is_there_and_ends(poems: Path, dataset: Dataset):
    tokenizer = Tokenizer.load(dataset.directory)
    expected = [id for name in ("a.txt", "b.txt", "c.txt") for id in (*tokenizer.encode((poems / name).read_text()), 0)]
    assert dataset.tokens.tolist() == expected
    assert names(dataset.directory) == sorted(FILES)
    assert dataset.manifest == Manifest(
        format=1,
        dtype="uint16",
        num_tokens=len(expected),
        num_documents=3,
        vocab_size=tokenizer.vocab_size,
        end_id=0,
        tokens_sha256=sha256((dataset.directory / "tokens.bin").read_bytes()).hexdigest(),
        tokenizer_sha256=sha256((dataset.directory / "tokenizer.json").read_bytes()).hexdigest(),
    )
    assert (dataset.directory / "tokens.bin").read_bytes() == np.array(expected, dtype="<u2").tobytes()


def test_a_long_document_is_one_document(tmp_path: Path):
    (tmp_path / "long.txt").write_text("the sea, the sea, the open sea\n" * 20_000)
    texts = found(tmp_path)
    assert len(list(texts.pieces())) > 3
    manifest = build(texts, learn(texts, vocab_size=300, watch=silent), tmp_path / "data", watch=silent)
    dataset = Dataset.open(tmp_path / "data")
    assert manifest.num_documents == 1
    assert np.flatnonzero(dataset.tokens == 0).tolist() == [manifest.num_tokens - 1]
    text = Tokenizer.load(tmp_path / "data").decode(dataset.tokens[:-1].tolist())
    assert text == (tmp_path / "long.txt").read_text()


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_ids_take_two_bytes_as_long_as_they_fit(tmp_path: Path, vocab_size: int, dtype: str):
    words = {f"w{id}": id for id in range(1, vocab_size)} | {END: 0}
    tokenizers.Tokenizer(WordLevel(words, unk_token=END)).save(str(tmp_path / "words.json"))
    (tmp_path / "last.txt").write_text(f"w{vocab_size - 1}")
    manifest = build(found(tmp_path, "*.txt"), Tokenizer.read(tmp_path / "words.json"), tmp_path / "d", watch=silent)
    assert (manifest.dtype, manifest.vocab_size) == (dtype, vocab_size)
    assert Dataset.open(tmp_path / "d").tokens.tolist() == [vocab_size - 1, 0]
    assert (tmp_path / "d" / "tokenizer.json").read_text() == (tmp_path / "words.json").read_text()


def test_a_vocabulary_is_learned_from_a_part_spread_over_the_text(poems: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(building, "SAMPLE_BYTES", 400)
    texts = found(poems)
    seen = []
    learn(texts, vocab_size=300, watch=lambda what, done_bytes, total_bytes: seen.append((what, done_bytes)))
    sizes = [(poems / name).stat().st_size for name in ("a.txt", "c.txt")]
    assert seen == [
        ("learning a vocabulary", sizes[0]),
        ("learning a vocabulary", sum(sizes)),
        ("merging tokens", sum(sizes)),
    ]


def test_what_is_there_is_replaced_only_when_told_and_only_if_it_is_a_data_set(dataset: Dataset, poems: Path):
    texts, tokenizer, before = found(poems, "b*"), Tokenizer.load(dataset.directory), dataset.tokens.tolist()
    with pytest.raises(InputError, match="exists already; --force replaces it"):
        build(texts, tokenizer, dataset.directory, watch=silent)
    with pytest.raises(InputError, match="poems: is not a data set, so --force does not replace it"):
        build(texts, tokenizer, poems, force=True, watch=silent)
    assert Dataset.open(dataset.directory).tokens.tolist() == before

    build(texts, tokenizer, dataset.directory, force=True, watch=silent)
    assert Dataset.open(dataset.directory).manifest.num_documents == 1
    assert dataset.tokens.tolist() == before, "who has it open keeps the old one"
    assert names(dataset.directory.parent) == ["data", "poems"]


def test_a_failure_leaves_nothing_and_keeps_what_was_there(dataset: Dataset, poems: Path):
    texts, tokenizer, before = found(poems), Tokenizer.load(dataset.directory), dataset.tokens.tolist()

    def interrupt(what: str, done_bytes: int, total_bytes: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(texts, tokenizer, dataset.directory, force=True, watch=interrupt)
    (poems / "c.txt").write_bytes(b"\xff")
    with pytest.raises(RunError, match="changed while it was read"):
        build(texts, tokenizer, dataset.directory, force=True, watch=silent)
    (poems / "c.txt").unlink()
    with pytest.raises(InputError, match=r"c\.txt: cannot be read: No such file or directory"):
        build(texts, tokenizer, dataset.directory.parent / "new", watch=silent)

    assert names(dataset.directory.parent) == ["data", "poems"]
    assert Dataset.open(dataset.directory).tokens.tolist() == before
