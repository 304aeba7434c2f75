"""Streams between nodes, and what came of them."""

import json
import subprocess
import sys
from dataclasses import dataclass

from geotrain.testbed import Testbed

SINK = """
import json, os, select, socket, sys, time
skip, seconds = map(float, sys.argv[1:])
server = socket.create_server((os.environ["GEOTRAIN_ADDRESS"], 5000), backlog=128)
print("listening", flush=True)
ready, streams, buffer = select.epoll(), {}, bytearray(1 << 20)
ready.register(server, select.EPOLLIN)
total, begin, marks = 0, None, []
while True:
    events = ready.poll(10)
    if not events:
        sys.exit("nothing came")
    for file, _ in events:
        if file == server.fileno():
            stream, _ = server.accept()
            stream.setblocking(False)
            streams[stream.fileno()] = stream
            ready.register(stream, select.EPOLLIN)
            begin = begin or time.monotonic()
            continue
        try:
            received = streams[file].recv_into(buffer)
        except BlockingIOError:
            continue
        if not received:
            ready.unregister(file)
            streams.pop(file).close()
        total += received
        now = time.monotonic() - begin
        if skip <= now <= seconds:
            marks = [marks[0] if marks else (now, total), (now, total)]
    if begin and not streams:
        break
(start, before), (end, after) = marks
print(json.dumps((after - before) / (end - start)), flush=True)
"""

SOURCE = """
import select, socket, sys, time
target, connections, seconds = sys.argv[1], *map(float, sys.argv[2:])
streams = {}
for _ in range(int(connections)):
    stream = socket.socket()
    stream.connect((target, 5000))
    stream.setblocking(False)
    streams[stream.fileno()] = stream
ready, data = select.epoll(), memoryview(bytes(1 << 18))
for file in streams:
    ready.register(file, select.EPOLLOUT)
until = time.monotonic() + seconds
while time.monotonic() < until:
    for file, _ in ready.poll(0.1):
        try:
            streams[file].send(data)
        except BlockingIOError:
            pass
"""

TRIPS = """
import socket, sys, time
trips = []
for _ in range(12):
    with socket.socket() as stream:
        before = time.monotonic()
        stream.connect((sys.argv[1], 5001))
        trips.append(time.monotonic() - before)
print(sorted(trips)[len(trips) // 2])
"""

LISTEN = """
import os, socket, time
server = socket.create_server((os.environ["GEOTRAIN_ADDRESS"], 5001), backlog=128)
print("listening", flush=True)
time.sleep(60)
"""

Place = tuple[str, int]
DEADLINE_S = 40


@dataclass
class Stream:
    """TCP from one node to another, for some seconds; the first `skip_s` are not counted."""

    bed: Testbed
    source: Place
    target: Place
    connections: int = 1
    seconds: float = 1.5
    skip_s: float = 0.5

    def __post_init__(self) -> None:
        sink = [sys.executable, "-c", SINK, str(self.skip_s), str(self.seconds)]
        self.sink = self.bed.popen(*self.target, sink, stdout=subprocess.PIPE, text=True)
        assert self.sink.stdout is not None and self.sink.stdout.readline() == "listening\n"
        address = self.bed.address(*self.target)
        source = [sys.executable, "-c", SOURCE, address, str(self.connections), str(self.seconds)]
        self.process = self.bed.popen(*self.source, source)

    def rate(self) -> float:
        """Bytes per second that arrived."""
        assert self.process.wait(DEADLINE_S) == 0
        out, _ = self.sink.communicate(timeout=DEADLINE_S)
        return float(json.loads(out))


def round_trip_s(bed: Testbed, source: Place, target: Place) -> float:
    """The time a TCP connection takes to be made, the middle one of several."""
    with bed.popen(*target, [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == "listening\n"
        command = [sys.executable, "-c", TRIPS, bed.address(*target)]
        with bed.popen(*source, command, stdout=subprocess.PIPE, text=True) as client:
            out, _ = client.communicate(timeout=DEADLINE_S)
        listener.kill()
    return float(out)
