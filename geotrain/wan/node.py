"""One node of a benchmark, as a process: `python -m geotrain.wan.node NAME HOST`, told by lines of JSON.

First how to get ready (`listen` and then `join` for our channels, `gloo` for torch's), then `send` and `receive`.
Answers with moments of the clock that all processes of a machine share, or with {"error": sentence}.
"""

import json
import os
import sys
import time
from typing import Any, Protocol

from geotrain.errors import GeotrainError
from geotrain.transport import Channel, Direction, Header, Identity, Listener, Settings
from geotrain.wan.gloo import Gloo

JOB = "wan-bench"
DEADLINE_S = 60.0


class _Memory:
    """Where buffers go: two places in turn, as in a trainer, so that no time is spent on fresh pages."""

    def __init__(self) -> None:
        self._places = [bytearray(), bytearray()]
        self._next = 0

    def __call__(self, header: Header, size_bytes: int) -> memoryview:
        self._next ^= 1
        if len(self._places[self._next]) < size_bytes:
            self._places[self._next] = bytearray(os.urandom(size_bytes))
        return memoryview(self._places[self._next])[:size_bytes]


class Carrier(Protocol):
    """What can carry a buffer to the other side."""

    def send(self, data: bytes) -> None:
        """Hand over; returns when the data may be changed again."""

    def receive(self, size_bytes: int) -> None:
        """Returns when so many bytes have arrived."""

    def count(self) -> dict[str, Any]:
        """What has happened so far."""


class _Own:
    """A channel of ours."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sent = 0

    def send(self, data: bytes) -> None:
        header = Header(job=JOB, step=0, pipeline=0, stage=0, microbatch=self._sent, direction=Direction.FORWARD)
        self._channel.send(header, data, deadline_s=DEADLINE_S)
        self._channel.flush(deadline_s=DEADLINE_S)
        self._sent += 1

    def receive(self, size_bytes: int) -> None:
        assert len(self._channel.receive(deadline_s=DEADLINE_S).data) == size_bytes

    def count(self) -> dict[str, Any]:
        return {"connections": self._channel.counters.connections}


class _Node:
    """What the process is told, one method per word."""

    def __init__(self, name: str, host: str) -> None:
        self._identity = Identity(job=JOB, node=name, insecure=True)
        self._host = host
        self._listener: Listener | None = None
        self._carrier: Carrier | None = None
        self._data = b""

    def listen(self, settings: dict[str, Any], reuse: bool) -> int:
        how: dict[str, Any] = {"allocate": _Memory()} if reuse else {}
        self._listener = Listener(identity=self._identity, settings=Settings(**settings), host=self._host, **how)
        return self._listener.address[1]

    def join(
        self, here: list[dict[str, Any]], there: list[dict[str, Any]], wan: dict[str, Any], pooling: dict[str, Any]
    ) -> str:
        from geotrain.transport.pool import Endpoint, Pooling, join

        assert self._listener is not None
        channel = join(
            listener=self._listener,
            identity=self._identity,
            here=[Endpoint(**endpoint) for endpoint in here],
            there=[Endpoint(**endpoint) for endpoint in there],
            wan=Settings(**wan),
            pooling=Pooling(**pooling),
            deadline_s=DEADLINE_S,
        )
        self._carrier = _Own(channel)
        return "joined"

    def gloo(self, rank: int, address: str, port: int) -> str:
        self._carrier = Gloo(rank=rank, host=self._host, address=address, port=port, deadline_s=DEADLINE_S)
        return "joined"

    def send(self, size_bytes: int) -> float:
        assert self._carrier is not None
        if len(self._data) != size_bytes:
            self._data = os.urandom(size_bytes)
        begin_s = time.monotonic()
        self._carrier.send(self._data)
        return begin_s

    def receive(self, size_bytes: int) -> float:
        assert self._carrier is not None
        self._carrier.receive(size_bytes)
        return time.monotonic()

    def count(self) -> dict[str, Any]:
        assert self._carrier is not None
        return {**self._carrier.count(), "cpu_s": time.process_time()}


def main() -> None:
    """Answer each line on stdin with one on stdout, until there are no more."""
    # Libraries that talk on stdout must not disturb the conversation.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    node = _Node(*sys.argv[1:3])
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"answer": getattr(node, order.pop("do"))(**order)}
        except (GeotrainError, OSError, RuntimeError, ImportError) as error:
            answer = {"error": str(error).splitlines()[0] if str(error) else repr(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
