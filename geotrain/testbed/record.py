"""What is known about a testbed outside of it: a JSON file in the state directory, and whether its keeper lives."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from geotrain.errors import InputError, RunError
from geotrain.testbed.blueprint import Blueprint

MARK = "GEOTRAIN_TESTBED"
"""Environment variable of every process of a testbed: its identity."""
DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def default_state() -> Path:
    """Where testbeds are recorded if nothing else is said."""
    if os.geteuid() == 0:
        return Path("/run/geotrain-testbed")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "geotrain-testbed" if runtime else Path(f"/tmp/geotrain-testbed-{os.geteuid()}")


class Place(BaseModel):
    """A node's namespace: the keeper's open file, and the inode that /proc shows."""

    model_config = ConfigDict(frozen=True)

    dc: str
    node: int
    file: int
    inode: int


class Record(BaseModel):
    """One testbed; without places, one that is being built or whose building was cut short."""

    model_config = ConfigDict(frozen=True)

    name: str
    identity: str
    keeper: int
    keeper_started: int
    """The kernel's start time of that process: tells it from a later one with the same number."""
    created: float
    kind: Literal["netem", "forwarder", "unknown"] = "unknown"
    congestion: str = ""
    rootless: bool = False
    carried: tuple[str, ...] = ()
    blueprint: Blueprint
    places: tuple[Place, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the process that keeps the namespaces is still there."""
        return started(self.keeper) == self.keeper_started

    @property
    def state(self) -> Literal["up", "being built", "dead"]:
        """In one word."""
        if not self.alive:
            return "dead"
        return "up" if self.places else "being built"

    def place(self, dc: str, node: int) -> Place:
        """Where that node is; InputError says which there are."""
        self.blueprint.node(dc, node)
        for place in self.places:
            if (place.dc, place.node) == (dc, node):
                return place
        raise RunError(f"the testbed {self.name!r} was never finished; `geotrain testbed down` removes it")


class Files:
    """The files of one testbed in the state directory."""

    def __init__(self, state: Path | None, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InputError(f"--name is {name!r} and must be 1 to 32 letters, digits, '-' or '_'")
        self.state, self.name = default_state() if state is None else state, name
        self.record = self.state / f"{name}.json"
        self.log = self.state / f"{name}.log"
        self.socket = self.state / f"{name}.sock"

    @property
    def down(self) -> str:
        """The command that removes this testbed."""
        return f"geotrain testbed down{self.options}"

    @property
    def options(self) -> str:
        """What names this testbed on a command line."""
        name = f" --name {self.name}" if self.name != DEFAULT_NAME else ""
        return name + (f" --state {self.state}" if self.state != default_state() else "")

    def read(self) -> Record | None:
        """The record, or None if there is no such testbed."""
        try:
            text = self.record.read_text(encoding="utf-8")
            return Record.model_validate_json(text)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise InputError(f"--state is {str(self.state)!r} and must be a directory") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.record}: cannot be read: {error}") from None
        except ValidationError:
            raise InputError(f"{self.record}: is not the record of a testbed; remove the file") from None

    def claim(self, record: Record) -> None:
        """Write the first record of a name; InputError if the name is taken."""
        try:
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.state.stat().st_uid not in (os.geteuid(), 0):
                raise InputError(f"{self.state}: belongs to another user; --state names another directory")
            with self.record.open("x", encoding="utf-8") as file:
                file.write(record.model_dump_json(indent=1))
        except FileExistsError:
            if self.state.is_dir():
                raise InputError(self._taken()) from None
            raise InputError(f"--state is {str(self.state)!r} and must be a directory") from None
        except OSError as error:
            raise InputError(f"{self.state}: cannot be written: {error.strerror}; --state names another") from None

    def write(self, record: Record) -> None:
        """Replace the record as a whole."""
        partial = self.record.with_suffix(".partial")
        partial.write_text(record.model_dump_json(indent=1), encoding="utf-8")
        partial.replace(self.record)

    def remove(self) -> None:
        """Forget the testbed; the record last, so that an interrupted `down` can be repeated."""
        for path in (self.socket, self.log, self.record.with_suffix(".partial"), self.record):
            path.unlink(missing_ok=True)

    def _taken(self) -> str:
        held = self.read()
        state = "is up already" if held is not None and held.alive else "has died and left its record behind"
        return f"the testbed {self.name!r} {state}: `{self.down}` removes it"


def started(process: int) -> int | None:
    """When that process began, in the kernel's ticks; None if there is none, or it is only waiting to be reaped."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def own_start() -> int:
    """When this process began."""
    start = started(os.getpid())
    assert start is not None
    return start
