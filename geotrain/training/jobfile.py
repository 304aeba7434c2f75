"""The job of a file, its own or a plan's; and writing a profile into it, every other character left as it is.

The YAML parser says where things stand in the text; only there the text is changed. Afterwards the result is read and
must differ from the file in the profile and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from geotrain.errors import InputError
from geotrain.files import read_text, read_yaml, write_text
from geotrain.plan import Plan
from geotrain.units import format_seconds
from geotrain.workload import Job, Profile


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """Where a job stands, and what it says."""

    path: Path
    """The file with its text."""
    within: tuple[str, ...]
    """Keys that lead to it there."""
    job: Job
    plan: Plan | None
    """Which stages there are; read without the job's old profile, which may be of other ones."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a job file, or a plan file and its job."""
        content = read_yaml(path)
        if not isinstance(content, Mapping) or not {"stages", "cluster", "job"} & content.keys():
            return cls(path=path, within=(), job=Job.parse(content, source=path), plan=None)
        given = content.get("job")
        if isinstance(given, str) and (beside := path.parent / given).exists():
            job = Job.load(beside)
            bare = job.model_copy(update={"profile": Profile()})
            return cls(path=beside, within=(), job=job, plan=Plan.parse({**content, "job": bare}, source=path))
        old = Profile()
        if isinstance(given, Mapping):
            old = Profile.parse(given.get("profile", {}), source=path)
            content = {**content, "job": {key: value for key, value in given.items() if key != "profile"}}
        plan = Plan.parse(content, source=path)
        job = plan.job.model_copy(update={"profile": old})
        return cls(path=path, within=("job",), job=job, plan=plan)

    def write(self, profile: Profile) -> None:
        """Put the profile into the text; comments and the order of fields stay."""
        text, fields = read_text(self.path), _plain(profile.dump())
        try:
            edited = self._edited(text, fields)
            meant = yaml.safe_load(text)
            self._inside(meant)["profile"] = fields
            good = yaml.safe_load(edited) == meant
        except (yaml.YAMLError, AttributeError, TypeError):
            # An anchor, say, that was in the text replaced.
            good = False
        if not good:
            where = ".".join((*self.within, "profile"))
            raise InputError(
                f"{self.path}: is written in a way that is not changed by itself; write under {where}: {_flow(fields)}"
            )
        write_text(self.path, edited)

    def _inside(self, content: Any) -> Any:
        for key in self.within:
            content = content[key]
        return content

    def _edited(self, text: str, fields: Mapping[str, Any]) -> str:
        if not self._inside(yaml.safe_load(text)).get("profile"):
            return _put(text, (*self.within, "profile"), fields)
        for key, value in fields.items():
            text = _put(text, (*self.within, "profile", key), value)
        return text


def _plain(value: Any, key: str = "") -> Any:
    """As people write it: times with a unit, bytes as whole numbers."""
    if isinstance(value, Mapping):
        return {key: _plain(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return format_seconds(value) if key.endswith("_s") else round(value)


def _put(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with this value under those keys, of which only the last may be missing."""
    parent = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in path[:-1]:
        parent = _pair(parent, key)[1]
    key, pair = path[-1], _pair(parent, path[-1])
    column = parent.start_mark.column
    rows = f"{key}: {_flow(value)}" if parent.flow_style else "\n".join(_rows(key, value, column)).lstrip()
    if pair is not None:
        return text[: pair[0].start_mark.index] + rows + text[_last(pair[1]).end_mark.index :]
    if parent.flow_style:
        end = parent.value[-1][1].end_mark.index if parent.value else parent.start_mark.index + 1
        return f"{text[:end]}{', ' if parent.value else ''}{rows}{text[end:]}"
    end = text.find("\n", _last(parent).end_mark.index)
    head, rest = (text.rstrip(), "\n") if end < 0 else (text[:end], text[end:])
    return f"{head}\n{' ' * column}{rows}{rest}"


def _pair(node: Any, key: str) -> Any:
    return next((pair for pair in node.value if pair[0].value == key), None)


def _last(node: yaml.Node) -> yaml.Node:
    """The last thing in a block: where that ends, the block does. Marks of blocks themselves lie further down."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return node


def _rows(key: str, value: Any, column: int) -> list[str]:
    """A field in block style; the figures of a stage on one line."""
    indent = " " * column
    if isinstance(value, list):
        return [f"{indent}{key}:", *(f"{indent}  - {_flow(entry)}" for entry in value)]
    if isinstance(value, Mapping) and key == "profile":
        return [f"{indent}{key}:", *(row for name, inner in value.items() for row in _rows(name, inner, column + 2))]
    return [f"{indent}{key}: {_flow(value)}"]


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return str(value)
