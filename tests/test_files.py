from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.files import Document, read_text, read_yaml, write_text


class Note(Document):
    title: str
    size_bytes: float = 0.0


def test_a_document_is_read_and_written_back(tmp_path: Path):
    path = tmp_path / "note.yaml"
    path.write_text("title: hello\n")
    note = Note.load(path)
    assert note == Note(title="hello")
    assert note.dump() == {"title": "hello"}


def test_anchors_and_merge_keys_work(tmp_path: Path):
    path = tmp_path / "file.yaml"
    path.write_text("a: &base {x: 1, y: 2}\nb: {<<: *base, y: 3}\n")
    assert read_yaml(path) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param("", "is empty", id="empty"),
        pytest.param("# nothing\n", "is empty", id="only-a-comment"),
        pytest.param("- title\n", "must be a mapping of fields, but is a list", id="list"),
        pytest.param("title\n", "must be a mapping of fields, but is the single value 'title'", id="text"),
        pytest.param(
            "title: [a\n",
            "not valid YAML: line 2, column 1: while parsing a flow sequence, "
            "expected ',' or ']', but got '<stream end>'",
            id="unclosed",
        ),
        pytest.param(
            "title: a\ntitle: b\n", "not valid YAML: line 2, column 1: the key 'title' is given twice", id="twice"
        ),
        pytest.param(
            "title: a\n---\ntitle: b\n",
            "not valid YAML: line 2, column 1: expected a single document in the stream, but found another document",
            id="two-documents",
        ),
        pytest.param("titel: a\n", "titel is not a known field: did you mean 'title'? (and 1 more problem)", id="typo"),
    ],
)
def test_a_wrong_file_is_named_in_one_sentence(tmp_path: Path, content: str, sentence: str):
    path = tmp_path / "note.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        Note.load(path)
    assert str(caught.value) == f"{path}: {sentence}"


def test_files_that_cannot_be_read_say_why(tmp_path: Path):
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    reasons = []
    for path in (missing, tmp_path, binary):
        with pytest.raises(InputError) as caught:
            read_text(path)
        reasons.append(str(caught.value))
    assert reasons == [
        f"{missing}: no such file",
        f"{tmp_path}: is a directory, expected a file",
        f"{binary}: is not UTF-8 text",
    ]


def test_a_file_is_written_as_a_whole_and_makes_its_directory(tmp_path: Path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_written_says_why(tmp_path: Path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "below"
    with pytest.raises(InputError) as caught:
        write_text(path, "text")
    assert str(caught.value).startswith(f"{path}: cannot be written: ")
