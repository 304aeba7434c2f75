import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError, RunError
from geotrain.tokens.texts import Tree, find_texts, read_pieces, standard_library
from geotrain.tokens.tokenizer import Tokenizer
from tests.tokens.conftest import found, silent


def test_directories_are_walked_in_order_and_what_is_no_text_is_counted(tmp_path: Path):
    for name in ("b.txt", "a/z.txt", "a/a.md", "c/d/e.txt", ".git/config", "a/.hidden", "data/tokenizer.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "latin-1.txt").write_bytes("für".encode("latin-1"))
    (tmp_path / "cut.txt").write_bytes("für".encode()[:2])
    (tmp_path / "nul.txt").write_bytes(b"a\0b")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "gone.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo.txt")

    texts = found(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in texts.files] == ["b.txt", "a/a.md", "a/z.txt", "c/d/e.txt"]
    assert texts.size_bytes == len("b.txta/a.mda/z.txtc/d/e.txt")
    assert texts.skipped == {"hidden": 2, "not UTF-8 text": 3, "empty": 1, "not a regular file": 2}
    assert [path.name for path in found(tmp_path, "*.md").files] == ["a.md"]


def test_the_standard_library_is_there_without_its_tests():
    texts = find_texts([standard_library()], avoid=Path("data"), watch=silent)
    names = {path.name for path in texts.files}
    assert {"os.py", "argparse.py", "ast.py"} <= names
    assert not {"site-packages", "test", "tests"} & {part for path in texts.files for part in path.parts[-3:-1]}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("nowhere", "no such file or directory", id="missing"),
        pytest.param("fifo", "is neither a file nor a directory", id="fifo"),
        pytest.param("binary", "no text found, 1 not UTF-8 text", id="no-text"),
        pytest.param("directory", "no text found", id="nothing"),
        pytest.param("memory", "cannot be read: Input/output error", id="unreadable"),
    ],
)
def test_text_that_cannot_be_used_is_one_sentence(tmp_path: Path, name: str, sentence: str):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "directory").mkdir()
    (tmp_path / "memory").symlink_to("/proc/self/mem")
    with pytest.raises(InputError) as caught:
        find_texts([Tree(path=tmp_path / name)], avoid=tmp_path / "data", watch=silent)
    assert str(caught.value) == f"{tmp_path / name}: {sentence}"


def test_a_file_that_changes_meanwhile_is_one_sentence(poems: Path):
    texts = found(poems)
    (poems / "b.txt").write_bytes(b"\xff")
    with pytest.raises(RunError, match=r"b\.txt: changed while it was read and is no longer UTF-8 text"):
        list(texts.pieces())


@given(text=st.text(alphabet="ab \n\r ü", max_size=60), piece_chars=st.integers(1, 20))
def test_pieces_are_the_document(tmp_path_factory: pytest.TempPathFactory, text: str, piece_chars: int):
    path = tmp_path_factory.getbasetemp() / "document.txt"
    path.write_bytes(text.encode())
    pieces = list(read_pieces(path, piece_chars=piece_chars))
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert max(len(piece.text) for piece in pieces) <= 3 * piece_chars


def test_a_document_in_pieces_has_the_tokens_of_the_whole():
    path = Path(os.__file__)
    text = path.read_text()
    tokenizer = Tokenizer.train([text], vocab_size=400)
    pieces = [piece.text for piece in read_pieces(path, piece_chars=2000)]
    assert len(pieces) > 10
    assert [token for ids in tokenizer.encode_all(pieces) for token in ids] == tokenizer.encode(text)
