"""A node's process from outside: told and asked with deadlines, killed at the end."""

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import Any

from geotrain.errors import RunError

Start = Callable[[list[str]], "subprocess.Popen[bytes]"]


class NodeProcess:
    """Tell it one thing, take its answer, then the next."""

    def __init__(self, name: str, command: list[str], start: Start) -> None:
        self.name = name
        self._process = start(command)
        self._rest = b""

    def tell(self, do: str, **order: Any) -> None:
        """Send an order; the answer is asked for later, so that several nodes can work at a time."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise RunError(f"the node {self.name} has died") from None

    def answer(self, *, deadline_s: float) -> Any:
        """What it says to the last order; RunError with its sentence, or if it says nothing in time."""
        assert self._process.stdout is not None
        end_s = time.monotonic() + deadline_s
        while b"\n" not in self._rest:
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise RunError(f"the node {self.name} has not answered within {deadline_s:g} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise RunError(f"the node {self.name} has died")
            self._rest += part
        line, self._rest = self._rest.split(b"\n", 1)
        found = json.loads(line)
        if "error" in found:
            raise RunError(found["error"])
        return found["answer"]

    def ask(self, do: str, *, deadline_s: float, **order: Any) -> Any:
        """Tell and wait."""
        self.tell(do, **order)
        return self.answer(deadline_s=deadline_s)

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
