"""Transfers of training size over an emulated WAN: one connection, as many as it takes, pooled, and plain gloo.

Real processes, real TCP, one transfer at a time: from the moment the sender hands it over until the receiver has
it all. Beside each stands what the simulator counts on for the same link: b / w + rtt / 2.
"""

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from geotrain.cluster import Cluster
from geotrain.errors import InputError, RunError
from geotrain.network import Path as Wire
from geotrain.network import connections_for, pair_rate
from geotrain.network.path import pool
from geotrain.testbed import Testbed
from geotrain.transport import Settings
from geotrain.units import format_seconds
from geotrain.wan.process import NodeProcess

DEADLINE_S = 70.0
GLOO_PORT = 29500
_SOURCE, _TARGET = "source", "target"
_WARM_UPS = 3
_SETTLE_S, _STEADY = 25.0, 3
"""`auto` is given so long to settle; that many transfers with the same number of connections say that it has."""
_ROOT = Path(__file__).parents[2]

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """One way to send, and how long a transfer took."""

    way: str
    pairs: int = 1
    connections: int = 1
    """Per pair."""
    times_s: list[float]
    predicted_s: float = math.nan
    """By the simulator's model of the link."""
    cpu_s: float = math.nan
    """Of sender and receiver together, for a transfer."""
    missing: str = ""
    """Why there is nothing."""

    @property
    def time_s(self) -> float:
        """The middle one."""
        return statistics.median(self.times_s) if self.times_s else math.nan


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A benchmark between two data centers, one of `source` sends to one of `target`."""

    source: str
    target: str
    size_bytes: int
    rows: list[BenchRow]

    def rate(self, row: BenchRow) -> float:
        """Bytes per second of a transfer, waiting included."""
        return self.size_bytes / row.time_s

    def gain(self, row: BenchRow) -> float:
        """How many times as fast as one connection."""
        return self.rows[0].time_s / row.time_s


class Benchmark:
    """A cluster cut down to two data centers, on a testbed of up to `pairs` nodes each."""

    def __init__(
        self, cluster: Cluster, source: str, target: str, *, size_bytes: int, count: int, pairs: int, tell: Tell
    ) -> None:
        if source == target:
            raise InputError(f"--between is {source},{target} and must name two data centers")
        self._sites = cluster.datacenter(source), cluster.datacenter(target)
        if empty := next((dc.name for dc in self._sites if dc.nodes < 1), None):
            raise InputError(f"the data center {empty} has no nodes")
        self._names = source, target
        self._link = cluster.link(source, target)
        links = [link for link in cluster.wan.links if set(link.directions[0]) <= {source, target}]
        wan = cluster.wan.model_copy(update={"links": links})
        self.cluster = cluster.model_copy(update={"datacenters": list(self._sites), "wan": wan})
        self._size_bytes, self._count = size_bytes, count
        self._pairs = min(pairs, *(dc.nodes for dc in self._sites))
        self._tell = tell

    def run(self) -> Bench:
        """All ways; RunError where no testbed can be built."""
        with self.testbed() as bed:
            one = self.own(bed, "one connection", 1)
            auto = self.own(bed, "n connections", "auto")
            rows = [one, auto, self.pooled(bed, auto.connections), self.gloo(bed)]
        return Bench(source=self._names[0], target=self._names[1], size_bytes=self._size_bytes, rows=rows)

    def testbed(self) -> Testbed:
        """The two data centers, with as many nodes as there are pairs."""
        return Testbed(self.cluster, nodes_per_dc=self._pairs)

    def predicted_s(self, connections: int, pairs: int = 1) -> float:
        """What the simulator counts on; without a cap, no time but the latency."""
        latency_s = (self._link.rtt_s or 0.0) / 2
        rate = pair_rate(self._link, connections)
        own = Wire(crosses_wan=True, rate=rate, latency_s=latency_s, pairs=1, connections=connections)
        wire = pool(own, pairs, *self._sites, self._size_bytes)
        return wire.occupancy_s(self._size_bytes) + wire.latency_s

    def own(self, bed: Testbed, way: str, connections: int | Literal["auto"]) -> BenchRow:
        """One pair of nodes."""
        with self._joined(bed, 1, replace(self._settings, connections=connections)) as (sender, receiver):
            if connections != "auto":
                return self._row(way, sender, receiver, simulated=connections)
            self._settle(sender, receiver)
            return self._row(way, sender, receiver, simulated=connections_for(self._link))

    def pooled(self, bed: Testbed, connections: int) -> BenchRow:
        """All pairs as one pipe."""
        way = f"pooled, {self._pairs} pairs"
        if self._pairs < 2:
            return BenchRow(way="pooled", times_s=[], missing="needs two nodes in each data center")
        enough = max(connections, connections_for(self._link))
        settings = replace(self._settings, connections=enough)
        try:
            with self._joined(bed, self._pairs, settings) as (sender, receiver):
                return self._row(way, sender, receiver, simulated=enough, pairs=self._pairs)
        except RunError as error:
            return BenchRow(way=way, times_s=[], missing=str(error))

    def gloo(self, bed: Testbed) -> BenchRow:
        """torch.distributed, to compare with; says why not where there is no torch."""
        with ExitStack() as stack:
            sender, receiver = (self._node(stack, bed, dc, 0) for dc in self._names)
            address = bed.address(self._names[0], 0)
            try:
                for rank, node in enumerate((sender, receiver)):
                    node.tell("gloo", rank=rank, address=address, port=GLOO_PORT)
                for node in (sender, receiver):
                    node.answer(deadline_s=DEADLINE_S)
                return self._row("gloo", sender, receiver, simulated=1)
            except RunError as error:
                return BenchRow(way="gloo", times_s=[], missing=str(error))

    @property
    def _settings(self) -> Settings:
        most = max(self._size_bytes, 64 << 20)
        return Settings(max_buffer_bytes=most, window_bytes=max(4 * most, 512 << 20))

    @contextmanager
    def _joined(self, bed: Testbed, pairs: int, settings: Settings) -> Iterator[tuple[NodeProcess, NodeProcess]]:
        """Nodes on both sides that are one pipe together; the first of each sends and receives."""
        from geotrain.transport.pool import Pooling

        rate = min(pair_rate(self._link, 64), 1e9)
        pooling = asdict(Pooling.for_link(rate_bytes_per_s=rate, rtt_s=self._link.rtt_s or 0.001))
        pooling |= {"max_buffer_bytes": settings.max_buffer_bytes, "window_bytes": settings.window_bytes}
        with ExitStack() as stack:
            sides = [[self._node(stack, bed, dc, number) for number in range(pairs)] for dc in self._names]
            seats = []
            for dc, nodes in zip(self._names, sides, strict=True):
                for node in nodes:
                    node.tell("listen", settings=asdict(settings), reuse=pairs == 1)
                ports = [node.answer(deadline_s=DEADLINE_S) for node in nodes]
                places = zip(nodes, ports, strict=True)
                seats.append(
                    [{"node": n.name, "host": bed.address(dc, i), "port": p} for i, (n, p) in enumerate(places)]
                )
            for side in (0, 1):
                for node in sides[side]:
                    node.tell("join", here=seats[side], there=seats[1 - side], wan=asdict(settings), pooling=pooling)
            for node in sides[0] + sides[1]:
                node.answer(deadline_s=DEADLINE_S)
            yield sides[0][0], sides[1][0]

    def _node(self, stack: ExitStack, bed: Testbed, dc: str, number: int) -> NodeProcess:
        def start(command: list[str]) -> "subprocess.Popen[bytes]":
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            return bed.popen(dc, number, command, cwd=_ROOT, **pipes)

        # Of two nodes the one with the lower name dials: the receiver listens, and so says where its buffers go.
        name = f"{_SOURCE if dc == self._names[0] else _TARGET}-{number}"
        command = [sys.executable, "-m", "geotrain.wan.node", name, bed.address(dc, number)]
        node = NodeProcess(name, command, start)
        stack.callback(node.kill)
        return node

    def _settle(self, sender: NodeProcess, receiver: NodeProcess) -> None:
        """Let `auto` find its number of connections."""
        end_s, seen = time.monotonic() + _SETTLE_S, list[int]()
        while time.monotonic() < end_s and not (len(seen) > 2 * _STEADY and len(set(seen[-_STEADY:])) == 1):
            self._transfer_s(sender, receiver)
            seen.append(sender.ask("count", deadline_s=DEADLINE_S)["connections"])

    def _row(self, way: str, sender: NodeProcess, receiver: NodeProcess, *, simulated: int, pairs: int = 1) -> BenchRow:
        """`simulated`: connections per pair that the simulator counts on, which need not be what a tuner finds."""
        for _ in range(_WARM_UPS):
            self._transfer_s(sender, receiver)
        before_s = self._cpu_s(sender, receiver)
        times_s = [self._transfer_s(sender, receiver) for _ in range(self._count)]
        cpu_s = (self._cpu_s(sender, receiver) - before_s) / self._count
        used = simulated if pairs > 1 else sender.ask("count", deadline_s=DEADLINE_S)["connections"]
        row = BenchRow(
            way=way,
            pairs=pairs,
            connections=used,
            times_s=times_s,
            predicted_s=self.predicted_s(simulated, pairs),
            cpu_s=cpu_s,
        )
        self._tell(f"{way}: {format_seconds(row.time_s)}")
        return row

    def _cpu_s(self, *nodes: NodeProcess) -> float:
        return sum(float(node.ask("count", deadline_s=DEADLINE_S)["cpu_s"]) for node in nodes)

    def _transfer_s(self, sender: NodeProcess, receiver: NodeProcess) -> float:
        receiver.tell("receive", size_bytes=self._size_bytes)
        begin_s = sender.ask("send", size_bytes=self._size_bytes, deadline_s=DEADLINE_S)
        return float(receiver.answer(deadline_s=DEADLINE_S) - begin_s)
