import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from geotrain.errors import InputError, RunError
from geotrain.tokens import Dataset
from tests.editing import replace


def test_windows_overlap_by_one_so_that_each_token_is_predicted_once(dataset: Dataset):
    sequence = 16
    windows = [dataset.window(index, sequence) for index in range(dataset.windows(sequence))]
    assert {(len(window), window.dtype) for window in windows} == {(sequence + 1, np.dtype("int64"))}
    predicted = np.concatenate([window[1:] for window in windows])
    assert predicted.tolist() == dataset.tokens[1 : len(predicted) + 1].tolist()
    assert len(dataset.tokens) - 1 - len(predicted) < sequence
    assert dataset.windows(len(dataset.tokens) - 1) == 1
    assert dataset.windows(len(dataset.tokens)) == 0


def test_the_fingerprint_is_that_of_the_tokens(dataset: Dataset, tmp_path: Path):
    moved = dataset.directory.rename(tmp_path / "elsewhere")
    assert Dataset.open(moved).fingerprint == dataset.fingerprint
    Dataset.open(moved).verify()


Spoil = Callable[[Path], object]


CASES = [
    pytest.param(lambda d: d.rename(d.with_name("x")), ": is not a data set: it has no tokens.json", id="missing"),
    pytest.param(lambda d: (d / "tokens.bin").unlink(), "/tokens.bin: cannot be read: No such file", id="no-tokens"),
    pytest.param(lambda d: (d / "tokenizer.json").unlink(), "/tokenizer.json: no such file", id="no-tokenizer"),
    pytest.param(
        lambda d: replace(d / "tokenizer.json", '"add_prefix_space": false', '"add_prefix_space": true'),
        "/tokenizer.json: is not the tokenizer that made tokens.bin: other checksum",
        id="other-tokenizer",
    ),
    pytest.param(
        lambda d: replace(d / "tokens.json", '"format": 1', '"format": 2'),
        "/tokens.json: format is 2 and must be 1",
        id="newer-format",
    ),
    pytest.param(
        lambda d: replace(d / "tokens.json", '"uint16"', '"int64"'),
        "/tokens.json: dtype is 'int64' and must be 'uint16' or 'uint32'",
        id="dtype",
    ),
    pytest.param(lambda d: (d / "tokens.json").write_text("{"), "/tokens.json: not valid YAML: ", id="not-json"),
]


@pytest.mark.parametrize(("spoil", "sentence"), CASES)
def test_a_spoiled_data_set_is_one_sentence(dataset: Dataset, spoil: Spoil, sentence: str):
    spoil(dataset.directory)
    with pytest.raises(InputError) as caught:
        Dataset.open(dataset.directory)
    assert str(caught.value).startswith(f"{dataset.directory}{sentence}")


@pytest.mark.parametrize("change_bytes", [-1, 1])
def test_tokens_that_are_cut_short_or_too_many_are_noticed(dataset: Dataset, change_bytes: int):
    path = dataset.directory / "tokens.bin"
    num_tokens = dataset.manifest.num_tokens
    os.truncate(path, 2 * num_tokens + change_bytes)
    with pytest.raises(InputError) as caught:
        Dataset.open(dataset.directory)
    has = f"{path}: has {2 * num_tokens + change_bytes} bytes"
    assert str(caught.value) == f"{has}, but its {num_tokens} tokens take {2 * num_tokens}"


def test_a_model_must_know_all_tokens(dataset: Dataset):
    vocab_size = dataset.manifest.vocab_size
    Dataset.open(dataset.directory, model_vocab=vocab_size)
    with pytest.raises(InputError) as caught:
        Dataset.open(dataset.directory, model_vocab=256)
    assert str(caught.value) == (
        f"{dataset.directory}: has a vocabulary of {vocab_size}, more than the model's vocab of 256"
    )


def test_damaged_tokens_are_noticed(dataset: Dataset):
    path = dataset.directory / "tokens.bin"
    content = bytearray(path.read_bytes())
    content[20:22] = b"\xff\xff"
    path.write_bytes(content)
    damaged = Dataset.open(dataset.directory)
    with pytest.raises(InputError, match=r"tokens\.bin: is damaged: its checksum is not the one that was written"):
        damaged.verify()
    with pytest.raises(RunError, match=r"is damaged near token 8: 65535 is not in its vocabulary of \d+"):
        damaged.window(1, 8)
