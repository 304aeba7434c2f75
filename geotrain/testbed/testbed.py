"""A testbed as a program uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from geotrain.errors import InputError, RunError
from geotrain.testbed.blueprint import DEFAULT_NODES_PER_DC, Blueprint, draw
from geotrain.testbed.control import ask
from geotrain.testbed.launch import end, launch
from geotrain.testbed.processes import running_inside, take_down
from geotrain.testbed.record import MARK, Files, Record

if TYPE_CHECKING:
    from geotrain.cluster import Cluster

ADDRESS = "GEOTRAIN_ADDRESS"
"""Environment variable of every process started inside: its node's address."""


class Testbed:
    """A cluster on this machine: `with Testbed(cluster) as bed: bed.popen("east", 0, [...])`.

    Up from the first line of the block to its end; it also goes when this process dies. Raises InputError for a
    cluster that cannot be built, RunError where the machine does not let us.
    """

    __test__ = False  # pytest takes every Test... for a test.

    def __init__(
        self,
        cluster: Cluster,
        *,
        nodes_per_dc: int = DEFAULT_NODES_PER_DC,
        wan: Literal["auto", "netem", "forwarder"] = "auto",
        mtu: int = 9000,
        seed: int = 0,
    ) -> None:
        self.blueprint: Blueprint = draw(cluster, nodes_per_dc=nodes_per_dc, mtu=mtu, seed=seed)
        self._wan = wan
        self._state: str | None = None
        self._session: Session | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._state = tempfile.mkdtemp(prefix="geotrain-testbed-")
        files = Files(Path(self._state), "testbed")
        try:
            _, self._keeper = launch(files, self.blueprint, wan=self._wan, attached=True)
        except BaseException:
            shutil.rmtree(self._state, ignore_errors=True)
            raise
        self._session = Session(files)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None and self._keeper is not None and self._state is not None
        try:
            take_down(self._session.files)
        finally:
            end(self._keeper)
            shutil.rmtree(self._state, ignore_errors=True)

    @property
    def session(self) -> Session:
        """The testbed while it is up."""
        if self._session is None:
            raise RunError("the testbed is not up: use it in a `with` block")
        return self._session

    def address(self, dc: str, node: int = 0) -> str:
        """The IPv4 address of a node, the same from everywhere inside."""
        return self.blueprint.node(dc, node).address

    def popen(self, dc: str, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a node; options are those of subprocess.Popen."""
        return self.session.popen(dc, node, command, **options)

    def cut(self, source: str, target: str) -> None:
        """Let nothing through between two data centers, in this direction."""
        self.session.order_cut(source, target, cut=True)

    def heal(self, source: str, target: str) -> None:
        """End a cut."""
        self.session.order_cut(source, target, cut=False)

    def counters(self) -> dict[str, Any]:
        """What the WAN has carried, dropped and lost so far, per direction."""
        return self.session.counters()


class Session:
    """Dealing with a testbed that somebody has brought up."""

    def __init__(self, files: Files) -> None:
        record = files.read()
        if record is None:
            raise InputError(
                f"no testbed {files.name!r} is up in {files.state}: `geotrain testbed up CLUSTER` makes one"
            )
        self.files = files
        self.record: Record = record

    def check(self) -> None:
        """RunError if the process that keeps the testbed has died, or has not finished it."""
        name = self.record.name
        if not self.record.alive:
            raise RunError(
                f"the testbed {name!r} is dead, its process {self.record.keeper} has ended:"
                f" `{self.files.down}` cleans up"
            )
        if not self.record.places:
            raise RunError(f"the testbed {name!r} is still being built")

    def command(self, dc: str, node: int, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on a node."""
        self.check()
        place = self.record.place(dc, node)
        if not command:
            raise InputError("a command is missing after `--`")
        if shutil.which(command[0]) is None:
            raise InputError(f"the command {command[0]!r} does not exist here")
        keeper = f"/proc/{self.record.keeper}"
        user = [f"--user={keeper}/ns/user", "--preserve-credentials"] if self.record.rootless else []
        return ["nsenter", *user, f"--net={keeper}/fd/{place.file}", "--", *command]

    def environment(self, dc: str, node: int, base: Mapping[str, str]) -> dict[str, str]:
        """An environment that says where a process is, and by which `down` finds it."""
        address = self.record.blueprint.node(dc, node).address
        return {**base, MARK: self.record.identity, ADDRESS: address}

    def popen(self, dc: str, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a node."""
        base = options.pop("env", None)
        environment = self.environment(dc, node, os.environ if base is None else base)
        return subprocess.Popen(self.command(dc, node, command), env=environment, **options)

    def guests(self) -> list[int]:
        """Processes that run inside."""
        return running_inside(self.record)

    def counters(self) -> dict[str, Any]:
        """What the WAN has carried, dropped and lost so far, per direction."""
        self.check()
        return ask(self.files.socket, {"do": "count"})

    def order_cut(self, source: str, target: str, *, cut: bool) -> None:
        """Cut one direction of the WAN, or heal it."""
        self.check()
        self.record.blueprint.way(source, target)
        ask(self.files.socket, {"do": "cut", "from": source, "to": target, "cut": cut})
