import subprocess
import sys
from pathlib import Path

import pytest

from geotrain.tokens import Dataset
from geotrain.tokens.tokenizer import Tokenizer


@pytest.fixture
def poems(tmp_path: Path) -> Path:
    directory = tmp_path / "poems"
    directory.mkdir()
    (directory / "sea.txt").write_text("the sea, the sea, the open sea\n" * 20)
    (directory / "land.py").write_text("print('land')\n")
    (directory / "image.png").write_bytes(b"\x89PNG\0")
    return directory


def test_text_becomes_a_data_set(geotrain, poems: Path, tmp_path: Path):
    out = tmp_path / "data"
    answer = geotrain("data", poems, "--out", out, "--train-bpe", 280)
    dataset, tokenizer = Dataset.open(out), Tokenizer.load(out)
    assert (answer.exit_code, answer.err) == (0, "")
    figures = dataset.manifest
    assert answer.out.splitlines() == [
        f"wrote {out}: {figures.num_tokens:,} tokens of 2 documents, 634 B of text",
        f"vocabulary {figures.vocab_size}, {634 / figures.num_tokens:.2f} bytes per token",
        "skipped: 1 not UTF-8 text",
    ]
    texts = tokenizer.decode(dataset.tokens.tolist()).split("<|endoftext|>")
    assert texts == [(poems / "land.py").read_text(), (poems / "sea.txt").read_text(), ""]


def test_json_says_the_same_and_a_vocabulary_serves_again(geotrain, poems: Path, tmp_path: Path):
    first = geotrain("data", poems, "--out", tmp_path / "data", "--train-bpe", 280, "--json").json
    more = ("data", poems, "--glob", "*.py", "--tokenizer", tmp_path / "data" / "tokenizer.json", "--json")
    second = geotrain(*more, "--out", tmp_path / "more").json
    assert (first["num_documents"], first["skipped"], second["skipped"]) == (2, {"not UTF-8 text": 1}, {})
    assert second == {
        "directory": str(tmp_path / "more"),
        "format": 1,
        "dtype": "uint16",
        "num_tokens": second["num_tokens"],
        "num_documents": 1,
        "vocab_size": first["vocab_size"],
        "end_id": 0,
        "tokens_sha256": Dataset.open(tmp_path / "more").fingerprint,
        "tokenizer_sha256": first["tokenizer_sha256"],
        "text_bytes": 14,
        "skipped": {},
    }
    assert geotrain(*more, "--out", tmp_path / "data", "--force").json["num_documents"] == 1


def test_the_standard_library_is_text_that_every_machine_has(geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "lib" / "test").mkdir(parents=True)
    for name in ("os.py", "test/test_os.py", "LICENSE.txt"):
        (tmp_path / "lib" / name).write_text(f"# {name}\n")
    monkeypatch.setattr("sysconfig.get_path", {"stdlib": tmp_path / "lib"}.get)
    answer = geotrain("data", "--stdlib", "--out", tmp_path / "data", "--json").json
    assert (answer["num_documents"], answer["text_bytes"]) == (1, len("# os.py\n"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["--out", "data"], "give TEXT, files or directories, or --stdlib", id="no-text"),
        pytest.param(["nowhere", "--out", "data"], "nowhere: no such file or directory", id="missing"),
        pytest.param(["poems", "--out", "poems"], "poems: exists already; --force replaces it", id="exists"),
        pytest.param(
            ["poems", "--out", "poems", "--force"],
            "poems: is not a data set, so --force does not replace it",
            id="not-ours",
        ),
        pytest.param(["poems", "--out", "/dev/null/x"], "/dev/null/x: cannot be written: Not a directory", id="out"),
        pytest.param(["poems", "--out", "data", "--glob", "*.md"], "poems: no text found", id="no-match"),
        pytest.param(
            ["poems", "--out", "data", "--tokenizer", "poems/sea.txt"],
            "poems/sea.txt: is not a tokenizer.json: expected ident at line 1 column 2",
            id="tokenizer",
        ),
        pytest.param(
            ["poems", "--out", "data", "--tokenizer", "x", "--train-bpe", "300"],
            "give --tokenizer FILE or --train-bpe VOCAB, not both",
            id="both",
        ),
        pytest.param(
            ["poems", "--out", "data", "--end", "x"],
            "--end names a token of --tokenizer FILE, which is not given",
            id="end",
        ),
        pytest.param(
            ["poems", "--out", "data", "--train-bpe", "256"],
            "Invalid value for '--train-bpe': Input should be greater than or equal to 257",
            id="vocabulary",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    geotrain, poems: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
):
    monkeypatch.chdir(poems.parent)
    answer = geotrain("data", *arguments)
    assert (answer.exit_code, answer.out, answer.err) == (2, "", f"error: {sentence}\n")
    assert [path.name for path in poems.parent.iterdir()] == ["poems"]
    assert len(list(poems.iterdir())) == 3


@pytest.mark.parametrize("below", ["", "data"])
def test_a_link_to_itself_is_no_place_for_data(geotrain, poems: Path, tmp_path: Path, below: str):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    answer = geotrain("data", poems, "--out", loop / below)
    said = f"error: {loop / below}: cannot be written: a symbolic link in it leads to itself\n"
    assert (answer.exit_code, answer.err) == (2, said)


def test_a_disk_without_room_is_one_sentence_and_leaves_nothing(poems: Path, tmp_path: Path):
    small_files_only = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    script = f"{small_files_only}; from geotrain.cli import main; main()"
    command = [sys.executable, "-c", script, "data", str(poems), "--out", str(tmp_path / "data")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == f"error: {tmp_path / 'data'}: cannot be written: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["poems"]
