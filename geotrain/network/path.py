"""Time on the wire between two stages: how long a transfer holds its channel, and how much later it arrives.

Occupancy and latency are separate: the next transfer may enter the channel while this one is still under way.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from geotrain.cluster import Datacenter, Link
from geotrain.cluster.cluster import limit
from geotrain.network.nodes import Row, most_on_a_pair, row_of
from geotrain.plan import Plan

CHUNK_BYTES = 4e6
"""Pooled transfers are cut into chunks, so that scatter, WAN and gather overlap."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """One direction between two stages, for one transfer of one microbatch."""

    crosses_wan: bool
    rate: float
    """Bytes per second that the transfer gets while it is alone."""
    latency_s: float
    """From leaving the sender to being at the receiver."""
    pairs: int
    """Pipelines whose connections carry the transfer together."""
    connections: int
    """TCP connections per pipeline."""
    sharing: int = 1
    """Pipelines that share a pair of nodes, each with an even part of its cap."""

    def occupancy_s(self, size_bytes: float) -> float:
        """How long the transfer holds its channel."""
        return size_bytes / self.rate

    @property
    def is_instant(self) -> bool:
        """No bytes ever wait on it."""
        return math.isinf(self.rate) and self.latency_s == 0


def connections_for(link: Link) -> int:
    """Fewest TCP connections of one pair that reach what the link allows it."""
    target = min(limit(link.pair_cap), limit(link.capacity))
    if math.isinf(target) or not link.rtt_s or link.tcp_window_bytes is None:
        return 1
    # 5.000000001 connections are 5: the files' decimals are not exact in binary.
    return max(1, math.ceil(target * link.rtt_s / link.tcp_window_bytes - 1e-9))


def pair_rate(link: Link, connections: int, sharing: int = 1) -> float:
    """Bytes per second of one of the pipelines that share a pair: min(cap / sharing, connections x window / rtt)."""
    window_rate = math.inf
    if link.rtt_s and link.tcp_window_bytes is not None:
        window_rate = connections * link.tcp_window_bytes / link.rtt_s
    return min(limit(link.pair_cap) / sharing, window_rate)


def path_between(plan: Plan, source: int, target: int, *, pooled: bool, size_bytes: float) -> Path:
    """The way from one slot stage's result to another slot stage."""
    here, there = plan.datacenter_of(source), plan.datacenter_of(target)
    if here.name == there.name:
        return _inside(here)
    sharing = most_on_a_pair([(row_of(plan, source), row_of(plan, target))], plan.num_pipelines)
    link, wanted = plan.cluster.link(here.name, there.name), plan.wan.connections
    own = Path(
        crosses_wan=True,
        rate=rate_of(link, wanted, sharing=sharing),
        latency_s=(link.rtt_s or 0.0) / 2,
        pairs=1,
        connections=connections_for(link) if wanted == "auto" else wanted,
        sharing=sharing,
    )
    return pool(own, plan.pipelines_per_cell, here, there, size_bytes) if pooled else own


def rate_of(link: Link, wanted: int | Literal["auto"], *, sharing: int = 1, width: int = 1) -> float:
    """Bytes per second of one of those that share a pair, with `width` channels of the wanted connections."""
    if wanted == "auto" and link.pair_cap is None and link.capacity is None:
        return math.inf  # no cap to reach: connections are added for as long as they help
    connections = connections_for(link) if wanted == "auto" else wanted
    return pair_rate(link, connections * width, sharing)


def _inside(dc: Datacenter) -> Path:
    fabric = dc.fabric
    rate, latency = (fabric.rate, fabric.latency_s) if fabric else (math.inf, 0.0)
    return Path(crosses_wan=False, rate=rate, latency_s=latency, pairs=1, connections=1)


def pool(own: Path, pairs: int, here: Datacenter, there: Datacenter, size_bytes: float) -> Path:
    """The same way with all pipelines of a cell carrying one transfer: scatter here, cross together, gather there.

    The fabric moves (pairs - 1)/pairs of the bytes on each side while the WAN leg runs; what is not hidden is
    the scatter of the first chunk and the gather of the last.
    """
    if pairs == 1:
        return own
    rate = own.rate * pairs
    latency = own.latency_s
    moved = (pairs - 1) / pairs
    for fabric in (here.fabric, there.fabric):
        if fabric is not None:
            rate = min(rate, fabric.rate / moved)
            latency += fabric.latency_s + moved * min(size_bytes, CHUNK_BYTES) / fabric.rate
    return replace(own, rate=rate, latency_s=latency, pairs=pairs)


def ring_all_reduce_s(participants: int, size_bytes: float, dc: Datacenter) -> float:
    """Ring all-reduce inside a data center: 2 (n - 1) / n x bytes at the fabric's rate."""
    if participants == 1 or dc.fabric is None:
        return 0.0
    return 2 * (participants - 1) / participants * size_bytes / dc.fabric.rate


@dataclass(frozen=True, kw_only=True)
class Ring:
    """Data centers that hold copies of a stage, in a ring over the WAN.

    Gradients are reduced and scattered inside each, all-reduced across with every pair carrying its part, and gathered
    inside. What crosses goes layer by layer, while backward still works on the layers before.
    """

    groups: list[tuple[Datacenter, int]]
    """Each data center, and its copies of the stage."""
    links: list[Link]
    """From each data center to the next."""
    stages: int
    """Whose gradients cross at the same time."""
    tensor_parallel: int
    connections: int | Literal["auto"]

    @property
    def pairs(self) -> int:
        """Copies of a data center that each send a part of every stage's gradients."""
        return min(copies for _, copies in self.groups)

    def sent_bytes(self, size_bytes: float) -> float:
        """Over each link, of that many bytes of gradients."""
        return 2 * (len(self.groups) - 1) / len(self.groups) * size_bytes

    @cached_property
    def rates(self) -> list[float]:
        """Per link: bytes per second of one copy of a stage."""
        rows = [
            [Row(stage * copies, dc.slots_per_node(self.tensor_parallel)) for stage in range(self.stages)]
            for dc, copies in self.groups
        ]
        rates = []
        for link, here, there in zip(self.links, rows, [*rows[1:], rows[0]], strict=True):
            sharing = most_on_a_pair(list(zip(here, there, strict=True)), self.pairs)
            rate = rate_of(link, self.connections, sharing=sharing)
            rates.append(min(rate, limit(link.capacity) / (self.pairs * self.stages)))
        return rates

    def across_s(self, size_bytes: float) -> float:
        """The part over the WAN."""
        hops = 2 * (len(self.groups) - 1)
        latency = max((link.rtt_s or 0.0) / 2 for link in self.links)
        return self.sent_bytes(size_bytes) / self.pairs / min(self.rates) + hops * latency

    def all_reduce_s(self, size_bytes: float, chunks: int, hidden_s: float) -> float:
        """What is left after the backward, if that makes the chunks one after the other in the last `hidden_s`.

        Inside a data center nothing is hidden, as without replicas.
        """
        inside = max(ring_all_reduce_s(copies, size_bytes, dc) for dc, copies in self.groups)
        across = self.across_s(size_bytes)
        return inside + max(across - hidden_s * (chunks - 1) / chunks, across / chunks)


def ring_of(plan: Plan) -> Ring:
    """The data centers of a plan with replicas."""
    names = [dc.name for dc, _ in plan.groups]
    links = [plan.cluster.link(here, there) for here, there in zip(names, [*names[1:], names[0]], strict=True)]
    return Ring(
        groups=plan.groups,
        links=links,
        stages=len(plan.stages),
        tensor_parallel=plan.tensor_parallel,
        connections=plan.wan.connections,
    )
