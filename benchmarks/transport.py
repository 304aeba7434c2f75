"""The transport on loopback: how fast, what it costs, and whether it survives what the tests do to it at full size.

`python -m benchmarks.transport [FUZZ_SECONDS]` runs all of it; the cores are the limit, so nothing else should run.
"""

import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measurement import Measurement, best_of
from geotrain.transport import (
    Credentials,
    DeadlineError,
    Direction,
    Header,
    Identity,
    Listener,
    PeerLostError,
    Settings,
    TcpChannel,
    connect,
)
from geotrain.transport.checksum import IMPLEMENTATION, checksum
from geotrain.transport.frame import Bye, Data, Hello, Status, encode
from geotrain.transport.keys import make_keys
from tests.transport.chaos import Chaos
from tests.transport.pairs import QUICK, insecure
from tests.transport.peer import running_peer
from tests.transport.test_faults import MANY, exchange

_BUFFER_BYTES = 32 << 20
_WINDOW_BUFFERS = 4
_SPEED = Settings(window_bytes=(_WINDOW_BUFFERS << 25) + (1 << 20), max_buffer_bytes=_BUFFER_BYTES)
_REPEATS = 3
_TRANSFERS = 10_000


def run(fuzz_s: float = 10.0) -> Iterator[Measurement]:
    """All of the above."""
    yield from _checksum()
    yield from _speed()
    yield from _random_deaths()
    yield from _peer_death()
    yield from _fuzz(fuzz_s)


def _header(microbatch: int) -> Header:
    return Header(job="j", step=0, pipeline=0, stage=0, microbatch=microbatch, direction=Direction.FORWARD)


def _noise(size_bytes: int) -> memoryview:
    return np.random.default_rng(0).integers(0, 256, size_bytes, np.uint8).data


def _checksum() -> Iterator[Measurement]:
    data = _noise(64 << 20)
    rate = len(data) / best_of(5, lambda: checksum(data)) / 1e9
    yield Measurement(name=f"checksum by {IMPLEMENTATION}, from memory", value=rate, unit="GB/s")


def _speed() -> Iterator[Measurement]:
    total_bytes = 4 << 30
    rate, cpu = max(_raw(connections, total_bytes) for connections in (1, 2) for _ in range(_REPEATS))
    yield Measurement(name="two processes, bare sockets, no checksum", value=rate, unit="GB/s")
    yield Measurement(name="  CPU of both sides", value=cpu, unit="s/GB")
    with tempfile.TemporaryDirectory() as directory:
        make_keys(Path(directory), job="j", nodes=["a", "b"], days=1)
        for words, keys, size, target in (("plain", "", total_bytes, 2.0), ("TLS", directory, total_bytes // 2, 1.0)):
            for connections in (1, 2, 4):
                settings = replace(_SPEED, connections=connections)
                rate, cpu = max(_channel(settings, size, keys) for _ in range(_REPEATS))
                goal = target if connections == 2 else None
                name = f"two processes, channel, {words}, {connections} connections"
                yield Measurement(name=name, value=rate, unit="GB/s", target=goal, more_is_better=True)
                yield Measurement(name="  CPU of both sides", value=cpu, unit="s/GB")


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _other_side(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.transport", *map(str, arguments)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        yield process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _identity(node: str, keys: str) -> Identity:
    return Identity(job="j", node=node, credentials=Credentials(Path(keys) / node)) if keys else insecure(node)


def _channel(settings: Settings, total_bytes: int, keys: str) -> tuple[float, float]:
    """GB/s and CPU seconds per GB of a one-way stream of training-sized buffers."""
    data = _noise(_BUFFER_BYTES)
    count = total_bytes // _BUFFER_BYTES
    with _other_side("sink", json.dumps(asdict(settings)), count, keys) as process:
        port = int(_line(process))
        identity = _identity("a", keys)
        with connect(
            "127.0.0.1", port, identity=identity, peer="b", channel="c", settings=settings, deadline_s=10
        ) as channel:
            cpu_s, start_s = _cpu_s(), time.perf_counter()
            for number in range(count):
                channel.send(_header(number), data, deadline_s=60)
            channel.flush(deadline_s=60)
            took_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - cpu_s
            cpu_s += float(_line(process))
    return count * _BUFFER_BYTES / took_s / 1e9, cpu_s / (count * _BUFFER_BYTES / 1e9)


def _sink(settings: Settings, count: int, keys: str) -> None:
    """The other side of that: memory is taken in turns, as a trainer would."""
    ring = [np.full(_BUFFER_BYTES, 1, np.uint8).data for _ in range(_WINDOW_BUFFERS + 2)]
    turns = iter(range(sys.maxsize))

    def allocate(header: Header, size_bytes: int) -> memoryview:
        return ring[next(turns) % len(ring)]

    with Listener(identity=_identity("b", keys), settings=settings, allocate=allocate) as listener:
        print(listener.address[1], flush=True)
        with listener.accept(deadline_s=30) as channel:
            cpu_s = _cpu_s()
            for number in range(count):
                assert channel.receive(deadline_s=60).header.microbatch == number
            print(_cpu_s() - cpu_s, flush=True)


def _raw(connections: int, total_bytes: int) -> tuple[float, float]:
    """What the kernel leaves: sendall and recv_into of the same pieces over as many sockets."""
    piece = _noise(1 << 20)
    pieces = total_bytes // connections // len(piece)
    with _other_side("raw", connections, pieces) as process:
        port = int(_line(process))
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]

        def send(sock: socket.socket) -> None:
            for _ in range(pieces):
                sock.sendall(piece)

        cpu_s, start_s = _cpu_s(), time.perf_counter()
        _at_once([partial(send, sock) for sock in socks])
        other_cpu_s = float(_line(process))
        took_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - cpu_s + other_cpu_s
        for sock in socks:
            sock.close()
    total = connections * pieces * len(piece) / 1e9
    return total / took_s, cpu_s / total


def _raw_sink(connections: int, pieces: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        socks = [server.accept()[0] for _ in range(connections)]

    def receive(sock: socket.socket) -> None:
        place = np.full(1 << 20, 1, np.uint8).data
        for _ in range(pieces):
            got = 0
            while got < len(place):
                got += sock.recv_into(place[got:])

    cpu_s = _cpu_s()
    _at_once([partial(receive, sock) for sock in socks])
    print(_cpu_s() - cpu_s, flush=True)


def _at_once(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _dial(address: tuple[str, int], settings: Settings) -> TcpChannel:
    return connect(*address, identity=insecure("a"), peer="b", channel="c", settings=settings, deadline_s=10)


def _random_deaths() -> Iterator[Measurement]:
    with running_peer("echo", MANY) as peer, Chaos(peer.address) as chaos:
        start_s = time.perf_counter()
        with _dial(chaos.address, MANY) as channel:
            went, came = exchange(channel, chaos, _TRANSFERS, trouble_every=5)
            channel.flush(deadline_s=20)
            counters = channel.counters
        took_s = time.perf_counter() - start_s
        there = peer.line()
    words = f"{_TRANSFERS} transfers there and back, connections killed"
    yield Measurement(name=f"{words}: lost, twice or changed", value=len({went, came, there}) - 1, unit="", target=0)
    yield Measurement(name="  connections that died and were replaced", value=counters.reconnects, unit="")
    yield Measurement(name="  pieces sent again, this side", value=counters.resends, unit="")
    yield Measurement(name="  pieces that came twice and were dropped, this side", value=counters.duplicates, unit="")
    yield Measurement(name="  time", value=took_s, unit="s")


def _peer_death() -> Iterator[Measurement]:
    settings = replace(QUICK, peer_timeout_s=2.0)
    for words, how in (("killed", signal.SIGKILL), ("frozen", signal.SIGSTOP)):
        with running_peer("echo", settings) as peer, _dial(peer.address, settings) as channel:
            channel.send(_header(0), b"hello", deadline_s=5)
            channel.receive(deadline_s=5)
            peer.process.send_signal(how)
            start_s = time.perf_counter()
            with contextlib.suppress(PeerLostError):
                channel.receive(deadline_s=20)
            took_s = time.perf_counter() - start_s
        yield Measurement(name=f"peer {words}, noticed with 2 s set", value=took_s, unit="s", target=2.5)


def _fuzz(seconds: float) -> Iterator[Measurement]:
    """Streams that are nearly right, against a listener that at the same time serves somebody else."""
    luck = random.Random(0)
    settings = replace(QUICK, peer_timeout_s=20.0, window_bytes=8 << 20, max_buffer_bytes=4 << 20)
    with (
        Listener(identity=insecure("b"), settings=settings, max_half_open=64) as listener,
        _dial(listener.address, settings) as a,
        listener.accept(deadline_s=5) as b,
    ):
        before_bytes, streams = _memory_bytes(), 0
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for _ in range(100):
                _send_garbage(listener.address, luck)
                streams += 1
            a.send(_header(streams), b"still here", deadline_s=5)
            assert b.receive(deadline_s=5).header.microbatch == streams
            with contextlib.suppress(DeadlineError):
                while True:
                    listener.accept(deadline_s=0).close(deadline_s=0)
        grown = (_memory_bytes() - before_bytes) / 1e6
        counters = listener.counters
        unharmed = (a.counters.reconnects, b.counters.malformed) == (0, 0)
    yield Measurement(name=f"{seconds:g} s of garbage, streams", value=streams, unit="")
    yield Measurement(
        name="  refused or malformed in the greeting", value=counters.refused + counters.malformed, unit=""
    )
    yield Measurement(name="  let in, then closed", value=counters.accepted, unit="")
    yield Measurement(name="  another channel was harmed", value=not unharmed, unit="", target=0)
    yield Measurement(name="  memory grown", value=grown, unit="MB", target=64)


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _send_garbage(address: tuple[str, int], luck: random.Random) -> None:
    hello = Hello(
        job="j",
        node="evil",
        channel=f"c{luck.randrange(4)}",
        session=luck.randbytes(16),
        window_bytes=1 << 20,
        max_buffer_bytes=1 << 20,
        max_chunk_bytes=1 << 16,
        peer_timeout_ms=1000,
    )
    payload = luck.randbytes(luck.choice([0, 10, 5000]))
    data = Data(
        header=_header(0),
        number=luck.choice([0, 0, 1, 2**40]),
        offset=0,
        total_bytes=luck.choice([len(payload), len(payload), 2**20, 2**60]),
        chunk_bytes=max(1, len(payload)),
        checksum=checksum(payload),
    )
    frames = [encode(data) + payload, encode(Status(acknowledged=luck.randrange(2), taken=0, connections=1))]
    frames.append(encode(Bye(sent=luck.randrange(3))))
    stream = bytearray(encode(hello) + b"".join(luck.choices(frames, k=luck.randrange(4))))
    for _ in range(luck.choice([0, 0, 1, 3])):
        stream[luck.randrange(len(stream))] = luck.randrange(256)
    del stream[luck.choice([len(stream), luck.randrange(len(stream) + 1)]) :]
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as sock:
        sock.sendall(stream)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


def main() -> None:
    """One line per figure, or one of the other sides."""
    match sys.argv[1:]:
        case ["sink", settings, count, keys]:
            _sink(Settings(**json.loads(settings)), int(count), keys)
        case ["raw", connections, pieces]:
            _raw_sink(int(connections), int(pieces))
        case rest:
            for row in run(*map(float, rest)):
                print(f"{row.name:<64} {row.value:8.4g} {row.unit:<6} {'' if row.met else 'MISSED'}", flush=True)


if __name__ == "__main__":
    main()
