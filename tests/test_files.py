import os
import re
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
        pytest.param(
            "x" * 1000,
            f"must be a mapping of fields, but is the single value '{'x' * 37}...{'x' * 38}'",
            id="long-text",
        ),
        pytest.param(
            f"{'x' * 1000}: a\n",
            f"{'x' * 80}... is not a known field: known are title, size_bytes (and 1 more problem)",
            id="long-name",
        ),
        pytest.param(
            "title: " + "[" * 5000 + "]" * 5000,
            "is nested too deeply: hundreds of lists or mappings within each other",
            id="nested-lists",
        ),
        pytest.param(
            "title: " + "{a: " * 5000 + "1" + "}" * 5000,
            "is nested too deeply: hundreds of lists or mappings within each other",
            id="nested-mappings",
        ),
        pytest.param("[a, b]: c\n", "not valid YAML: line 1, column 1: a key must be a single value", id="list-as-key"),
        pytest.param("title: !!bool maybe\n", "not valid YAML: a value is not of its type: 'maybe'", id="no-bool"),
        pytest.param(
            "title: 2026-13-45\n",
            "not valid YAML: a value is not of its type: month must be in 1..12",
            id="no-date",
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


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 20))
"""Ten to the nineteenth entries, were they all written out."""
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 20))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(BOMB, "a0 is not a known field: known are title, size_bytes (and 20 more problems)", id="values"),
        pytest.param(
            BOMB + "title: *a19\nsize_bytes: *a19\n",
            "a0 is not a known field: known are title, size_bytes",
            id="fields",
        ),
        pytest.param(BOMB + "? *a19\n: 1\n", "not valid YAML: line 20, column 6: a key must be a single", id="key"),
        pytest.param(MERGES, "a0 is not a known field: known are title, size_bytes (and 20 more", id="merges"),
    ],
)
def test_aliases_of_aliases_are_not_written_out(tmp_path: Path, content: str, sentence: str):
    path = tmp_path / "note.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(sentence)):
        Note.load(path)


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "/dev/zero"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str):
    """A pipe would keep its reader waiting, and a device has no end."""
    path = Path(kind) if kind.startswith("/") else tmp_path / "plan.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a pipe":
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    assert str(caught.value) == f"{path}: cannot be read: it is a pipe or a device, not a regular file"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path):
    path = tmp_path / "plan.yaml"
    path.touch()
    os.truncate(path, 4_000_001)
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    assert str(caught.value) == f"{path}: is too large: at most 4 million characters are read"


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


def test_a_link_to_itself_cannot_be_written(tmp_path: Path):
    path = tmp_path / "link"
    path.symlink_to(path)
    with pytest.raises(InputError) as caught:
        write_text(path / "below", "text")
    assert str(caught.value) == f"{path / 'below'}: cannot be written: a symbolic link in it leads to itself"


def test_a_name_that_is_not_utf_8_cannot_be_written_into_a_file_and_leaves_nothing(tmp_path: Path):
    path = tmp_path / "page.html"
    with pytest.raises(InputError) as caught:
        write_text(path, "made of r\udcff")
    assert str(caught.value) == f"{path}: cannot be written: it would contain a name that is not UTF-8"
    assert list(tmp_path.iterdir()) == []
