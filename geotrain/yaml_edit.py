"""Changing a YAML file in place, every other character left as it is.

The YAML parser says where things stand in the text; only there the text is changed. Afterwards the text must say what
was meant and nothing else, or the file is left alone: an anchor, say, may have been in the text replaced.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from geotrain.errors import InputError
from geotrain.files import read_text, write_text

Place = tuple[str | int, ...]
"""Keys and numbers of list entries that lead to a value."""


def change(path: Path, edit: Callable[[str], str], good: Callable[[str], bool], *, by_hand: str) -> None:
    """Write the file as edited, if that is good; else InputError says what to write by hand."""
    try:
        edited = edit(read_text(path))
        is_good = good(edited)
    except (yaml.YAMLError, InputError):
        is_good = False
    if not is_good:
        raise InputError(f"{path}: is written in a way that is not changed by itself; write under {by_hand}")
    write_text(path, edited)


def put(text: str, place: Place, value: Any) -> str:
    """The text with this value there; of the place only the last key may be missing."""
    parent = _node(text, place[:-1])
    key = str(place[-1])
    pair = next((pair for pair in parent.value if pair[0].value == key), None)
    rows = _rows(key, value, 0 if parent.flow_style else parent.start_mark.column, flow_style=parent.flow_style)
    if pair is None:
        return _appended(text, parent, rows)
    name, old = pair
    if isinstance(value, Mapping | list) or not isinstance(old, yaml.ScalarNode):
        return text[: name.start_mark.index] + rows.lstrip() + text[_last(old).end_mark.index :]
    gap = "" if text[: old.start_mark.index].endswith(" ") else " "
    return f"{text[: old.start_mark.index]}{gap}{flow(value)}{text[old.end_mark.index :]}"


def append(text: str, place: Place, entry: Any) -> str:
    """The text with one more entry in the list there."""
    parent = _node(text, place)
    return _appended(text, parent, flow(entry) if parent.flow_style else _entry(entry, parent.start_mark.column))


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    # Inside a list it is quoted as it must be there.
    listed: str = yaml.safe_dump([value], default_flow_style=True, width=1 << 20)
    return listed.strip()[1:-1]


def _node(text: str, place: Place) -> Any:
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in place:
        pairs = enumerate(node.value) if isinstance(key, int) else ((name.value, value) for name, value in node.value)
        node = next((value for name, value in pairs if name == key), None)
        if not isinstance(node, yaml.CollectionNode):
            raise InputError(f"the text has no {key} that could be changed")
    return node


def _appended(text: str, parent: Any, rows: str) -> str:
    """With the rows at the end of a list or mapping."""
    if not parent.flow_style:
        end = text.find("\n", _last(parent).end_mark.index)
        return f"{text.rstrip()}\n{rows}\n" if end < 0 else f"{text[:end]}\n{rows}{text[end:]}"
    if not parent.value:
        end = parent.start_mark.index + 1
        return f"{text[:end]}{rows}{text[end:]}"
    last = parent.value[-1][1] if isinstance(parent, yaml.MappingNode) else parent.value[-1]
    end = last.end_mark.index
    return f"{text[:end]}, {rows}{text[end:]}"


def _last(node: yaml.Node) -> yaml.Node:
    """The last thing in a block: where that ends, the block does. Marks of blocks themselves lie further down."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return node


def _rows(key: str, value: Any, column: int, *, flow_style: bool) -> str:
    """A field; where it may take several rows, what holds no lists or mappings still takes one."""
    indent = " " * column
    if flow_style or not _is_deep(value):
        return f"{indent}{key}: {flow(value)}"
    if isinstance(value, list):
        return "\n".join([f"{indent}{key}:", *(_entry(entry, column + 2) for entry in value)])
    inner = (_rows(name, inner, column + 2, flow_style=False) for name, inner in value.items())
    return "\n".join([f"{indent}{key}:", *inner])


def _entry(entry: Any, column: int) -> str:
    return f"{' ' * column}- {flow(entry)}"


def _is_deep(value: Any) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(isinstance(part, Mapping | list) for part in parts)
