"""What a testbed consists of: nodes with addresses, fabrics, and one-way WAN links, worked out from a cluster.

Pure data that travels as JSON from `up` to the process that keeps the testbed; builds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict

from geotrain.errors import InputError
from geotrain.units import plural

if TYPE_CHECKING:
    from geotrain.cluster import Cluster

DEFAULT_NODES_PER_DC = 4
MAX_NODES = 256
MIN_MTU, MAX_MTU = 576, 65000
SMALLEST_QUEUE_BYTES = 2e6
"""A WAN queue holds one bandwidth-delay product, but never less than about thirty large segments."""


class Space(NamedTuple):
    """A network namespace: a node of a data center, or (no node) the gate that joins the data center's nodes."""

    dc: str
    node: int | None = None

    def __str__(self) -> str:
        return f"the gate of {self.dc}" if self.node is None else f"{self.dc} node {self.node}"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Node(_Data):
    """One machine: a namespace with one address, on its fabric and on the WAN."""

    dc: str
    index: int
    address: str

    @property
    def space(self) -> Space:
        """Its namespace."""
        return Space(self.dc, self.index)


class FabricSpec(_Data):
    """The network inside one data center; no rate means unlimited."""

    rate: float | None = None
    latency_s: float = 0.0


class Site(_Data):
    """One data center: its subnet (a /16) and its fabric."""

    dc: str
    subnet: str
    fabric: FabricSpec
    nodes_in_file: int


class Way(_Data):
    """The WAN in one direction; a limit that is None does not limit."""

    source: str
    target: str
    delay_s: float
    round_trip_s: float
    pair_cap: float | None
    capacity: float | None
    window_bytes: int | None
    """What a TCP connection may have in flight this way."""
    loss: float

    def queue_bytes(self, rate: float) -> float:
        """What may wait in front of a limit of that rate before packets are dropped."""
        return max(rate * self.round_trip_s, SMALLEST_QUEUE_BYTES)


class Blueprint(_Data):
    """Everything that is built."""

    cluster: str
    sites: tuple[Site, ...]
    nodes: tuple[Node, ...]
    ways: tuple[Way, ...]
    mtu: int
    seed: int

    def node(self, dc: str, index: int) -> Node:
        """The node of that number; InputError says which there are."""
        here = [node for node in self.nodes if node.dc == dc]
        if not here:
            known = ", ".join(dict.fromkeys(node.dc for node in self.nodes))
            raise InputError(f"the testbed has no data center {dc!r}, only {known}")
        if not 0 <= index < len(here):
            only = f"node 0 to {len(here) - 1}" if len(here) > 1 else "node 0"
            raise InputError(f"{dc} has no node {index} in this testbed, only {only}; `up --nodes-per-dc` makes more")
        return here[index]

    def way(self, source: str, target: str) -> Way:
        """The WAN from one data center to another; InputError if there is none."""
        for way in self.ways:
            if (way.source, way.target) == (source, target):
                return way
        raise InputError(f"the testbed has no WAN link from {source!r} to {target!r}")

    def windows(self, dc: str) -> list[tuple[Site, int | None]]:
        """The other data centers, and the most that a connection may have in flight from each to `dc`."""
        return [(site, self.way(site.dc, dc).window_bytes) for site in self.sites if site.dc != dc]


def draw(cluster: Cluster, *, nodes_per_dc: int = DEFAULT_NODES_PER_DC, mtu: int = 9000, seed: int = 0) -> Blueprint:
    """The testbed of that cluster, with at most so many nodes in each data center."""
    if nodes_per_dc < 1:
        raise InputError(f"--nodes-per-dc is {nodes_per_dc} and must be at least 1")
    if not MIN_MTU <= mtu <= MAX_MTU:
        raise InputError(f"--mtu is {mtu} and must be between {MIN_MTU} and {MAX_MTU}")
    centers = [dc for dc in cluster.datacenters if dc.nodes > 0]
    counts = [min(dc.nodes, nodes_per_dc) for dc in centers]
    if not centers:
        raise InputError(f"the cluster {cluster.name!r} has no nodes")
    if len(centers) > 250 or sum(counts) > MAX_NODES:
        what = f"{plural(len(centers), 'data center')} with {sum(counts)} nodes"
        raise InputError(f"a testbed of {what} is too large for one machine: at most {MAX_NODES} nodes")
    sites, nodes = [], []
    for number, (dc, count) in enumerate(zip(centers, counts, strict=True), start=1):
        fabric = FabricSpec()
        if dc.fabric is not None:
            fabric = FabricSpec(rate=dc.fabric.rate, latency_s=dc.fabric.latency_s)
        sites.append(Site(dc=dc.name, subnet=f"10.{number}.0.0/16", fabric=fabric, nodes_in_file=dc.nodes))
        nodes += [Node(dc=dc.name, index=i, address=f"10.{number}.{i // 250}.{i % 250 + 1}") for i in range(count)]
    names = [site.dc for site in sites]
    ways = [_way(cluster, source, target) for source in names for target in names if source != target]
    return Blueprint(cluster=cluster.name, sites=tuple(sites), nodes=tuple(nodes), ways=tuple(ways), mtu=mtu, seed=seed)


def _way(cluster: Cluster, source: str, target: str) -> Way:
    link, back = cluster.link(source, target), cluster.link(target, source)
    window = link.tcp_window_bytes
    return Way(
        source=source,
        target=target,
        delay_s=(link.rtt_s or 0.0) / 2,
        round_trip_s=((link.rtt_s or 0.0) + (back.rtt_s or 0.0)) / 2,
        pair_cap=link.pair_cap,
        capacity=link.capacity,
        window_bytes=None if window is None else max(1, round(window)),
        loss=link.loss or 0.0,
    )
