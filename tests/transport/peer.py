"""The other node, as a process of its own: `python -m tests.transport.peer MODE SETTINGS` listens as node b.

Prints the port, then what its mode says. Modes: echo sends back what it receives until the peer closes and prints a
digest of all of it; idle accepts a channel and does nothing until a line comes on stdin, then prints its peak memory,
receives everything and prints a digest.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from geotrain.transport import Channel, ClosedError, Identity, Listener, Message, Settings


class Digest:
    """Order, headers and bytes of many messages."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b()
        self.count = 0

    def add(self, message: Message) -> None:
        self._hash.update(message.header.pack() + len(message.data).to_bytes(8, "little"))
        self._hash.update(message.data)
        self.count += 1

    @property
    def text(self) -> str:
        return f"{self.count} {self._hash.hexdigest()}"


class Peer:
    """The process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self.address = "127.0.0.1", int(self.line())

    def line(self) -> str:
        """What it says next."""
        return self._stdout.readline().strip()

    def go(self) -> None:
        """What an idle one waits for."""
        self._stdin.write("\n")
        self._stdin.flush()


@contextmanager
def running_peer(mode: str, settings: Settings) -> Iterator[Peer]:
    """A process of the given mode, killed at the end."""
    command = [sys.executable, "-m", "tests.transport.peer", mode, json.dumps(asdict(settings))]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, text=True, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Peer(process)
        finally:
            process.kill()


def peak_memory_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def receive_all(channel: Channel, *, echo: bool) -> str:
    digest = Digest()
    while True:
        try:
            message = channel.receive(deadline_s=60)
        except ClosedError:
            return digest.text
        digest.add(message)
        if echo:
            channel.send(message.header, message.data, deadline_s=60)


def main() -> None:
    mode, settings = sys.argv[1], Settings(**json.loads(sys.argv[2]))
    with Listener(identity=Identity(job="j", node="b", insecure=True), settings=settings) as listener:
        say(listener.address[1])
        with listener.accept(deadline_s=30) as channel:
            if mode == "idle":
                before = peak_memory_bytes()
                sys.stdin.readline()
                say(peak_memory_bytes() - before)
            say(receive_all(channel, echo=mode == "echo"))


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
