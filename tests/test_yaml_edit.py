"""Values put into a text leave the rest of it as it is."""

from pathlib import Path

import pytest
import yaml

from geotrain.errors import InputError
from geotrain.yaml_edit import append, change, flow, put


@pytest.mark.parametrize(
    ("text", "place", "value", "after"),
    [
        pytest.param("a:    1   # one\nb: 2\n", ("a",), 7, "a:    7   # one\nb: 2\n", id="alignment stays"),
        pytest.param("a:\nb: 2\n", ("a",), 7, "a: 7\nb: 2\n", id="a value that was left out"),
        pytest.param("a: 1", ("b",), "40 ms", "a: 1\nb: 40 ms\n", id="no newline at the end"),
        pytest.param("a: {b: 1,  # x\n}\n", ("a", "c"), 2, "a: {b: 1, c: 2,  # x\n}\n", id="over several lines"),
        pytest.param("a: {}\n", ("a", "c"), [1], "a: {c: [1]}\n", id="nothing yet"),
        pytest.param("- {b: 1}\n- {b: 2}\n", (1, "b"), 3, "- {b: 1}\n- {b: 3}\n", id="in a list"),
        pytest.param("a: 1\n", ("b",), {"c": 1, "d": 2}, "a: 1\nb: {c: 1, d: 2}\n", id="plain values on a line"),
        pytest.param("a: 1\n", ("b",), {"c": [{"d": 2}]}, "a: 1\nb:\n  c:\n    - {d: 2}\n", id="deep ones on several"),
    ],
)
def test_a_value_is_put_where_it_belongs(text, place, value, after):
    assert put(text, place, value) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        pytest.param("a: [x]  # a\n", "a: [x, {n: 1}]  # a\n", id="flow"),
        pytest.param("a: []\n", "a: [{n: 1}]\n", id="empty"),
        pytest.param("a:\n- x  # x\nb: 1\n", "a:\n- x  # x\n- {n: 1}\nb: 1\n", id="block"),
    ],
)
def test_a_list_gets_another_entry(text, after):
    assert append(text, ("a",), {"n": 1}) == after


@pytest.mark.parametrize("name", ["east", "no", "12", "a, b", "x: y", "# 1", "", "long " * 40])
def test_names_are_quoted_where_they_must_be(name):
    assert yaml.safe_load(flow({"between": [name]})) == {"between": [name]}


def test_what_is_not_written_where_it_is_read_is_left_alone(tmp_path: Path):
    path, merged = tmp_path / "file.yaml", "base: &b {a: {c: 1}}\nmine:\n  <<: *b\n"
    path.write_text(merged)
    with pytest.raises(InputError, match=r"is not changed by itself; write under mine: \{c: 2\}"):
        change(path, lambda text: put(text, ("mine", "a", "c"), 2), lambda _: True, by_hand="mine: {c: 2}")
    assert path.read_text() == merged


def test_what_would_say_something_else_is_left_alone(tmp_path: Path):
    path = tmp_path / "file.yaml"
    path.write_text("a: 1\n")
    with pytest.raises(InputError, match="is not changed by itself"):
        change(path, lambda text: put(text, ("a",), 2), lambda edited: edited == "a: 3\n", by_hand="a: 2")
    assert path.read_text() == "a: 1\n"
