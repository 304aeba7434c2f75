"""The process that is a testbed: it holds the namespaces open, forwards packets, and answers questions.

Started by `launch`, with one JSON line on stdin; answers with one on stdout. When it ends, however it ends, the
kernel takes all namespaces and devices away with it.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from geotrain.errors import GeotrainError
from geotrain.testbed.blueprint import Blueprint
from geotrain.testbed.builder import Builder
from geotrain.testbed.control import Control
from geotrain.testbed.forwarder import Forwarder
from geotrain.testbed.namespace import leave_the_host, wake_up_on_time
from geotrain.testbed.processes import end_guests
from geotrain.testbed.record import Files, Place, Record, own_start
from geotrain.testbed.wan import cut_step

_PRIORITY = -10


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What `launch` asks for."""

    state: str
    name: str
    identity: str
    created: float
    wan: Literal["auto", "netem", "forwarder"]
    attached: bool
    """End when stdin does: with the program that uses the testbed."""
    blueprint: dict[str, Any]


def main() -> None:
    """Build, say so, and serve until a signal."""
    signal.signal(signal.SIGTERM, _leave)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    try:
        orders = Orders(**json.loads(sys.stdin.readline()))
        keeper = Keeper(orders)
    except GeotrainError as error:
        _answer({"error": str(error), "exit_code": error.exit_code})
        sys.exit(error.exit_code)
    except Exception as error:
        traceback.print_exc()
        _answer({"error": f"the testbed could not be built: {type(error).__name__}: {error}", "exit_code": 1})
        sys.exit(1)
    # If nobody is there to hear it, `up` has died: end here, and with this process all that was built.
    _answer({"ready": True})
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    keeper.run()


def _leave(*_: object) -> NoReturn:
    # Straight to the kernel: it closes the namespaces, and nothing else needs to be put in order.
    os._exit(0)


def _answer(answer: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except OSError:
        os._exit(1)


class Keeper:
    """A testbed from the inside."""

    def __init__(self, orders: Orders) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._files = files = Files(Path(orders.state), orders.name)
        blueprint = Blueprint.model_validate(orders.blueprint)
        record = Record(
            name=orders.name,
            identity=orders.identity,
            keeper=os.getpid(),
            keeper_started=own_start(),
            created=orders.created,
            blueprint=blueprint,
        )
        files.write(record)
        rootless = leave_the_host()
        self._builder = Builder(blueprint, orders.wan)
        self._builder.build()
        self._forwarder = Forwarder(blueprint, self._builder.devices, self._builder.carried)
        self._control = Control(files.socket, self._forwarder, self._serve)
        if orders.attached:
            self._forwarder.watch(sys.stdin.fileno(), self._hang_up)
        files.write(record.model_copy(update=self._found(rootless)))

    def _found(self, rootless: bool) -> dict[str, Any]:
        made = self._builder
        places = [
            Place(dc=node.dc, node=node.index, file=made.spaces[node.space], inode=made.inode(node.space))
            for node in made.blueprint.nodes
        ]
        return {
            "kind": made.kind,
            "congestion": made.congestion(),
            "rootless": rootless,
            "carried": tuple(sorted(made.carried)),
            "places": tuple(places),
        }

    def run(self) -> NoReturn:
        """Serve for ever, ahead of others where the machine allows that: a late packet is a longer round trip."""
        # Forwarding makes no cycles, and a collection would show as jitter.
        gc.collect()
        gc.disable()
        wake_up_on_time()
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
        self._forwarder.run()
        raise AssertionError("the forwarder ended")

    def _hang_up(self) -> None:
        """The program that uses the testbed has died without a goodbye: do what its `with` block would have done."""
        if os.read(sys.stdin.fileno(), 4096):
            return
        with suppress(OSError, GeotrainError):
            record = self._files.read()
            if record is not None:
                end_guests(record)
            self._files.remove()
            self._files.state.rmdir()
        _leave()

    def _serve(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "cut":
            self._cut(request["from"], request["to"], bool(request["cut"]))
        spent = os.times()
        counted = self._forwarder.counters() if self._builder.kind == "forwarder" else None
        return {"ways": counted, "strays": self._forwarder.strays, "cpu_s": spent.user + spent.system}

    def _cut(self, source: str, target: str, cut: bool) -> None:
        if self._builder.kind == "forwarder":
            self._forwarder.set_cut(source, target, cut)
        else:
            self._builder.run([cut_step(self._builder.blueprint, source, target, cut=cut)])
