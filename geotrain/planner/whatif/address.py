"""A field of the cluster or job file by its dotted path: `wan.default.rtt`, `datacenters.south.nodes`, `job.sequence`.

Entries of a list go by name or by index. A link is named by its two data centers and made if the file has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args, get_origin

from pydantic import BaseModel

from geotrain.cluster import Cluster
from geotrain.cluster.cluster import Datacenter, LinkOverride
from geotrain.errors import InputError
from geotrain.files import Document
from geotrain.hints import hint, nearest
from geotrain.workload import Job

Content = dict[str, Any]
Ends = tuple[str, str]
"""The two data centers of a link."""

_EITHER = {"microbatches": "global_batch", "global_batch": "microbatches"}
"""Fields of a job that replace each other."""


def content_of(document: Document) -> Content:
    """What the file said, a catalog name spelled out. Unlike a dump, it keeps a null that stands for `unlimited`."""
    content: Content = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return content


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a value goes."""

    in_job: bool
    keys: tuple[str | int | Ends, ...]

    def put(self, content: Content, value: object) -> None:
        """Set it there; what is missing on the way is made."""
        inside: Any = content
        for key, following in zip(self.keys, self.keys[1:], strict=False):
            if isinstance(key, str):
                inside = inside.setdefault(key, [] if isinstance(following, tuple) else {})
            else:
                inside = inside[_link_index(inside, key) if isinstance(key, tuple) else key]
        inside[self.keys[-1]] = value
        if self.in_job and len(self.keys) == 1:
            inside.pop(_EITHER.get(str(self.keys[0])), None)

    def get(self, content: Content) -> Any:
        """What stands there; None if nothing does."""
        inside: Any = content
        for key in self.keys:
            if isinstance(key, str):
                inside = inside.get(key)
            else:
                inside = inside[_link_index(inside, key) if isinstance(key, tuple) else key]
            if inside is None:
                return None
        return inside

    def excludes(self, other: "Address") -> bool:
        """Whether only one of the two can be set."""
        both_in_job = self.in_job and other.in_job
        return self == other or (both_in_job and _EITHER.get(str(self.keys[0])) == other.keys[0])


def find_address(path: str, cluster: Cluster, job: Job) -> Address:
    """Resolve the path; InputError says which part of it is unknown and what was probably meant."""
    head, _, rest = path.partition(".")
    in_job = head == "job"
    document: Document = job if in_job else cluster
    walk = _Walk(path, cluster, document)
    walk.go(rest if head in ("job", "cluster") else path)
    return Address(in_job=in_job, keys=tuple(walk.keys))


class _Walk:
    """Goes down a path through the models of a file and its content, side by side."""

    def __init__(self, path: str, cluster: Cluster, document: Document) -> None:
        self.path, self.cluster = path, cluster
        self.keys: list[str | int | Ends] = []
        self.models: list[type[BaseModel]] = [type(document)]
        self.entries: list[type[BaseModel]] = []
        self.content: Any = content_of(document)

    def go(self, rest: str) -> None:
        if not rest:
            self._refuse("names a whole file and must name a field of it, such as 'wan.default.rtt'")
        while rest:
            if self.entries and (isinstance(self.content, list) or not self.models):
                rest = self._into_entry(rest)
            elif self.models:
                rest = self._into_field(rest)
            else:
                self._refuse(f"{self._so_far} is a single value and has no field {rest!r}")
        if self.keys[-1] == "name":
            self._refuse(f"a new name alone changes nothing; vary {self._said(self.keys[:-1])!r}, or a field of it")

    def _into_field(self, rest: str) -> str:
        name, _, rest = rest.partition(".")
        fields = {
            field.alias or own: field.annotation for model in self.models for own, field in model.model_fields.items()
        }
        if name not in fields:
            where = f" of {self._so_far}" if self.keys else f" of a {self.models[0].__name__.lower()} file"
            self._refuse(f"{name!r} is not a field{where}: {self._meant(name, list(fields))}")
        self.keys.append(name)
        self.models, self.entries = _models_in(fields[name])
        self.content = self.content.get(name) if isinstance(self.content, dict) else None
        return rest

    def _meant(self, name: str, fields: list[str]) -> str:
        if (
            not self.keys
            and self.models[0] is Cluster
            and nearest(name, Job.model_fields)
            and not nearest(name, fields)
        ):
            return f"did you mean 'job.{self.path.replace(name, nearest(name, Job.model_fields)[0], 1)}'?"
        return hint(name, fields)

    def _into_entry(self, rest: str) -> str:
        listed: list[Any] = self.content or []
        first, _, after = rest.partition(".")
        key: int | Ends
        if first.isdecimal():
            key = int(first)
            if key >= len(listed):
                self._refuse(f"{self._so_far} has {len(listed)} entries and no number {key}; the first is number 0")
        elif Datacenter in self.entries:
            name, after = self._named(rest, [entry["name"] for entry in listed])
            key = next(index for index, entry in enumerate(listed) if entry["name"] == name)
        elif LinkOverride in self.entries:
            key, after = self._link(rest, listed)
        else:
            self._refuse(f"{self._so_far} is a list: give the number of an entry instead of {first!r}, the first is 0")
        self.keys.append(key)
        self.models, self.entries = self.entries, []
        self.content = listed[key] if isinstance(key, int) else None
        return after

    def _named(self, rest: str, names: Sequence[str]) -> tuple[str, str]:
        """The longest name that `rest` begins with, because a name may hold a dot itself; and what comes after."""
        for name in sorted(names, key=len, reverse=True):
            if rest == name or rest.startswith(f"{name}."):
                return name, rest[len(name) + 1 :]
        given = rest.partition(".")[0]
        self._refuse(f"{given!r} is not an entry of {self._so_far}: {hint(given, names)}")

    def _link(self, rest: str, listed: list[Any]) -> tuple[Ends, str]:
        names = [dc.name for dc in self.cluster.datacenters]
        ends = {f"{a}-{b}": (a, b) for a in names for b in names if a != b}
        name, after = self._named(rest, list(ends))
        a, b = ends[name]
        there, back = _links_of(listed, (a, b)), _links_of(listed, (b, a))
        if len(there) > 1:
            numbers = " or ".join(f"wan.links.{index}" for index in there)
            self._refuse(f"wan.links has {len(there)} entries for {name!r}: write {numbers}")
        if back and not there:
            self._refuse(f"wan.links has an entry from {b} to {a} only: write wan.links.{b}-{a}")
        return (a, b), after

    @property
    def _so_far(self) -> str:
        return self._said(self.keys)

    def _said(self, keys: Sequence[str | int | Ends]) -> str:
        said = ".".join("-".join(key) if isinstance(key, tuple) else str(key) for key in keys)
        return f"job.{said}" if self.path.startswith("job.") else said

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(f"--vary {self.path}: {why}")


def _links_of(listed: Sequence[Content], ends: Ends) -> list[int]:
    """Entries that speak of that direction."""

    def speaks(entry: Content) -> bool:
        between = entry.get("between")
        return set(between) == set(ends) if between else (entry.get("from"), entry.get("to")) == ends

    return [index for index, entry in enumerate(listed) if speaks(entry)]


def _link_index(listed: list[Content], ends: Ends) -> int:
    """The entry of that link, made if there is none."""
    found = _links_of(listed, ends)
    if not found:
        listed.append({"between": list(ends)})
    return found[0] if found else len(listed) - 1


def _models_in(annotation: Any) -> tuple[list[type[BaseModel]], list[type[BaseModel]]]:
    """Models that may stand in this place, and those that may stand in a list there."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation], []
    inside = [_models_in(argument) for argument in get_args(annotation)]
    models = [model for found, _ in inside for model in found]
    entries = [model for _, found in inside for model in found]
    return ([], models) if get_origin(annotation) in (list, tuple) else (models, entries)
