"""Reading YAML files into validated data, and CSV; whatever fails raises one sentence that begins with the file's name.

Knows YAML, CSV and pydantic; knows nothing about clusters, jobs or plans.
"""

import csv
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TextIO

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, ValidationError

from geotrain.complaints import complaint, shown
from geotrain.errors import InputError

_MOST = 10**15
_MOST_TEXT = 250_000_000
_MOST_YAML = 4_000_000
_LEAST_TEXT = 1 << 20


def _countable(value: int) -> int:
    if abs(value) > _MOST:
        raise ValueError(f"must be at most {_MOST}")
    return value


Whole = Annotated[int, Strict(), AfterValidator(_countable)]
"""A whole number: neither 4.0, "4" nor true."""
Number = Annotated[float, Strict()]
"""A number: neither "0.5" nor true."""


class Document(BaseModel):
    """Base of everything a person writes in a file: frozen, no unknown fields.

    An alias is the name in a file; code uses the field's own name.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and validate the file; InputError names file, field, value and limit."""
        return cls.parse(read_yaml(path), source=path)

    @classmethod
    def parse(cls, content: object, *, source: Path) -> Self:
        """Validate content that came from `source`; paths inside it are relative to that file."""
        if not isinstance(content, Mapping):
            what = "a list" if isinstance(content, list) else f"the single value {shown(content)}"
            raise InputError(f"{source}: must be a mapping of fields, but is {what}")
        try:
            return cls.model_validate(content, by_name=False, context={"directory": source.parent})
        except ValidationError as error:
            raise InputError(f"{source}: {complaint(error, cls)}") from error

    def dump(self) -> dict[str, Any]:
        """The file form: the names people write, SI numbers, defaults left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


_MERGE_TAG = "tag:yaml.org,2002:merge"


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice instead of keeping the last one."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put merged mappings in place of `<<`; a key once, for merges of merges would fill the memory."""
        super().flatten_mapping(node)
        node.value = list({_identity(pair[0]): pair for pair in node.value}.values())


def _identity(key_node: yaml.Node) -> object:
    return (key_node.tag, key_node.value) if isinstance(key_node, yaml.ScalarNode) else id(key_node)


def _unique_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE_TAG:
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be a single value", problem_mark=key_node.start_mark)
        if _identity(key_node) in seen:
            twice = f"the key {shown(key_node.value)} is given twice"
            raise yaml.MarkedYAMLError(problem=twice, problem_mark=key_node.start_mark)
        seen.add(_identity(key_node))
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def read_text(path: Path, *, most: int = _MOST_TEXT, follow: bool = True) -> str:
    """The file's text, or an InputError that says why not; `most` is in characters, `follow` as in `open_regular`."""
    with reading(path), open_regular(path, follow=follow) as raw, TextIOWrapper(raw, encoding="utf-8") as file:
        # Not more than the file has: so much memory is taken at once.
        text = file.read(min(most, max(os.fstat(raw.fileno()).st_size, _LEAST_TEXT)) + 1)
    if len(text) > most:
        raise InputError(f"{path}: is too large: at most {most / 1e6:g} million characters are read")
    return text


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """Open a regular file for reading bytes; OSError for anything else, at once: a pipe would keep its reader waiting.

    With `follow` false a symbolic link is refused too.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "it is a symbolic link, not a regular file", str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory, not a regular file", str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file; OSError as from `open_regular`."""
    with open_regular(path) as file:
        return file.read()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Where the file is read: what goes wrong is an InputError that says why."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, expected a file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def read_yaml(path: Path) -> object:
    """The file's content as plain data."""
    text = read_text(path, most=_MOST_YAML)
    try:
        content: object = yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise InputError(f"{path}: not valid YAML: {where}{what}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply: hundreds of lists or mappings within each other") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {str(error).splitlines()[0]}") from None
    except (ValueError, LookupError, AttributeError) as error:
        # What the parser lets through where a text is no date, or no value of the type that its tag names.
        raise InputError(f"{path}: not valid YAML: a value is not of its type: {error}") from None
    if content is None:
        raise InputError(f"{path}: is empty")
    return content


def csv_lines(text: str, *, source: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells of a CSV text, without comments and blank lines; InputError where it is not CSV."""
    reader = csv.reader(text.removeprefix("\ufeff").splitlines(), strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{source}: line {reader.line_num} is not CSV: {error}") from None


def make_private(directory: Path) -> None:
    """Made if it is missing; OSError unless it is this user's alone, for others could put files and links there."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = directory.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise PermissionError(errno.EACCES, "its directory must be this user's, and no other may write to it")


def place_of(path: Path) -> Path:
    """Return where the path leads, without links; InputError if it leads nowhere."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise InputError(f"{path}: cannot be written: a symbolic link in it leads to itself") from None


def write_text(path: Path, text: str) -> None:
    """Write the file as a whole or not at all."""
    with writing(path) as file:
        file.write(text)


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """A text file that appears under its name once it is complete; what is no regular file is written through."""
    target = place_of(path)
    through = target.exists() and not target.is_file()
    partial = target if through else target.with_name(target.name + ".partial")
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            yield file
        if not through:
            partial.replace(target)
    except (OSError, UnicodeEncodeError) as error:
        if not through:
            with suppress(OSError):
                partial.unlink()
        reason = error.strerror if isinstance(error, OSError) else "it would contain a name that is not UTF-8"
        raise InputError(f"{path}: cannot be written: {reason}") from None
