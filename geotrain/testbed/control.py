"""Questions and orders to a testbed that is up: one JSON line each way, over a socket in the state directory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geotrain.errors import RunError
from geotrain.testbed.forwarder import Forwarder

Answerer = Callable[[dict[str, Any]], dict[str, Any]]
DEADLINE_S = 5.0
_MOST_BYTES = 65536


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for that path that fits into a socket's address, which has room for 107 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class Control:
    """The answering end, served between packets; a client that says nothing costs nothing."""

    def __init__(self, path: Path, forwarder: Forwarder, answer: Answerer) -> None:
        self._forwarder, self._answer = forwarder, answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        path.unlink(missing_ok=True)
        with _short(path) as name:
            self._listener.bind(name)
        self._listener.listen(16)
        forwarder.watch(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        self._forwarder.watch(client.fileno(), lambda: self._serve(client))

    def _serve(self, client: socket.socket) -> None:
        self._forwarder.unwatch(client.fileno())
        with client:
            try:
                request = json.loads(client.recv(_MOST_BYTES))
                answer = self._answer(request)
            except (OSError, ValueError, TypeError, LookupError, RunError) as error:
                answer = {"error": str(error) or type(error).__name__}
            try:
                client.send(json.dumps(answer).encode())
            except OSError:
                return


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The testbed's answer; RunError if there is none in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(DEADLINE_S)
        try:
            with _short(path) as name:
                client.connect(name)
            client.send(json.dumps(request).encode())
            answer: dict[str, Any] = json.loads(client.recv(1 << 20))
        except (OSError, ValueError) as error:
            raise RunError(f"the testbed does not answer on {path}: {error}") from None
    if "error" in answer:
        raise RunError(f"the testbed refuses: {answer['error']}")
    return answer
