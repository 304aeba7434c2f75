"""A node of a cell as a process of its own: `python -m tests.transport.pool.node NAME HOST [KEYS]`.

Does what lines of JSON tell it: is told its settings and says where it listens; is told the endpoints of both sides and
joins; then makes buffers, whose bytes follow from pipeline, microbatch and direction, sends them, receives and
compares. Answers with the moments, of the clock that all processes of this machine share, or with the error.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

from geotrain.testbed import Testbed
from geotrain.transport import Channel, Credentials, Direction, Identity, Listener, Settings, TransportError
from geotrain.transport.pool import Endpoint, Pool, Pooling, join
from tests.transport.peer import peak_memory_bytes
from tests.transport.pool.cells import JOB, header, noise

Start = Callable[[list[str]], "subprocess.Popen[str]"]
ROOT = Path(__file__).parents[3]
DEADLINE_S = 60.0


class Node:
    """The process, from outside."""

    def __init__(self, name: str, host: str, start: Start, settings: Settings, keys: Path | None = None) -> None:
        command = [sys.executable, "-m", "tests.transport.pool.node", name, host]
        self.process = start(command if keys is None else [*command, str(keys / name)])
        assert self.process.stdin is not None and self.process.stdout is not None
        self._stdin: IO[str] = self.process.stdin
        self._stdout: IO[str] = self.process.stdout
        self.tell(**asdict(settings))
        self.endpoint = Endpoint(node=name, host=host, port=self.answer())

    def tell(self, **order: Any) -> None:
        self._stdin.write(json.dumps(order) + "\n")
        self._stdin.flush()

    def answer(self) -> Any:
        line = self._stdout.readline()
        if not line:
            raise AssertionError(f"{self.process.args!r} has died")
        return json.loads(line)


def on_this_machine(command: list[str]) -> "subprocess.Popen[str]":
    """Start a node here, at loopback."""
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def places(bed: Testbed, dc: str, count: int) -> list[tuple[str, Start]]:
    """Where and how to start nodes in a data center of a testbed."""

    def start(number: int, command: list[str]) -> "subprocess.Popen[str]":
        return bed.popen(dc, number, command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    return [(bed.address(dc, number), partial(start, number)) for number in range(count)]


@contextmanager
def running(
    near: Sequence[tuple[str, Start]],
    far: Sequence[tuple[str, Start]],
    *,
    wan: Settings,
    pooling: Pooling,
    keys: Path | None = None,
) -> Iterator[tuple[list[Node], list[Node]]]:
    """Nodes n0, n1... and f0, f1... at these hosts, joined; killed at the end."""
    with ExitStack() as stack:
        sides: dict[str, list[Node]] = {"n": [], "f": []}
        for side, places in (("n", near), ("f", far)):
            for number, (host, start) in enumerate(places):
                node = Node(f"{side}{number}", host, start, wan, keys)
                stack.enter_context(node.process)
                stack.callback(node.process.kill)
                sides[side].append(node)
        for here, there in (("n", "f"), ("f", "n")):
            for node in sides[here]:
                node.tell(
                    here=[asdict(other.endpoint) for other in sides[here]],
                    there=[asdict(other.endpoint) for other in sides[there]],
                    wan=asdict(wan),
                    pooling=asdict(pooling),
                )
        for node in sides["n"] + sides["f"]:
            assert node.answer() == "joined"
        yield sides["n"], sides["f"]


def transfer(senders: Sequence[Node], receivers: Sequence[Node], sizes: Sequence[int]) -> None:
    """Have all of these send, and these receive, so many buffers each; their answers tell how it went."""
    for sender in senders:
        sender.tell(do="make", sizes=sizes)
    for sender in senders:
        sender.answer()
    for receiver in receivers:
        receiver.tell(do="receive", sizes=sizes)
    for sender in senders:
        sender.tell(do="send")


def count(node: Node) -> dict[str, int]:
    """What has happened there so far."""
    node.tell(do="count")
    answer: dict[str, int] = node.answer()
    return answer


class _Played:
    """What a node does inside, in the order in which it is told."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.pipeline = int(name[1:])
        self.mine = Direction.FORWARD if name[0] == "n" else Direction.BACKWARD
        self.theirs = Direction(1 - self.mine)
        self.channel = channel
        self.sent = self.received = 0
        self.buffers: list[memoryview] = []

    def make(self, sizes: list[int]) -> None:
        self.buffers = [noise(size, self.pipeline, self.sent + n, self.mine) for n, size in enumerate(sizes)]

    def send(self) -> list[float]:
        moments = []
        for buffer in self.buffers:
            moments.append(time.monotonic())
            self.channel.send(header(self.pipeline, self.sent, self.mine), buffer, deadline_s=DEADLINE_S)
            self.sent += 1
        self.channel.flush(deadline_s=DEADLINE_S)
        return moments

    def receive(self, sizes: list[int]) -> list[float]:
        moments, messages = [], []
        for _ in sizes:
            messages.append(self.channel.receive(deadline_s=DEADLINE_S))
            moments.append(time.monotonic())
        for size, message in zip(sizes, messages, strict=True):
            assert message.header == header(self.pipeline, self.received, self.theirs)
            assert message.data == noise(size, self.pipeline, self.received, self.theirs)
            self.received += 1
        return moments

    def count(self) -> dict[str, int]:
        relayed = self.channel.relayed_bytes if isinstance(self.channel, Pool) else 0
        return {**asdict(self.channel.counters), "relayed_bytes": relayed, "peak_bytes": peak_memory_bytes()}


def main() -> None:
    name, host, *keys = sys.argv[1:]
    credentials = Credentials(Path(keys[0])) if keys else None
    identity = Identity(job=JOB, node=name, credentials=credentials, insecure=not keys)
    # The limits of what it accepts; the connections are opened by whoever dials.
    with Listener(identity=identity, settings=Settings(**json.loads(sys.stdin.readline())), host=host) as listener:
        say(listener.address[1])
        plan = json.loads(sys.stdin.readline())
        channel = join(
            listener=listener,
            identity=identity,
            here=[Endpoint(**endpoint) for endpoint in plan["here"]],
            there=[Endpoint(**endpoint) for endpoint in plan["there"]],
            wan=Settings(**plan["wan"]),
            pooling=Pooling(**plan["pooling"]),
            deadline_s=DEADLINE_S,
        )
        say("joined")
        played = _Played(name, channel)
        for line in sys.stdin:
            order = json.loads(line)
            try:
                say(getattr(played, order.pop("do"))(**order))
            except TransportError as error:
                say(f"{type(error).__name__}: {error}")


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
