"""The gradients of a tied embedding: after the all-reduce, the two ends of the first pipeline swap theirs."""

from dataclasses import dataclass
from typing import Literal

from geotrain.cluster import Cluster, Datacenter
from geotrain.cluster.cluster import limit
from geotrain.network.path import connections_for, rate_of


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Both ends send at the same time; nothing else is on the wire then."""

    size_bytes: float
    """Each way."""
    here: Datacenter
    there: Datacenter
    rates: tuple[float, float]
    """Bytes per second, there and back."""
    connections: tuple[int, int]
    total_s: float
    """From when both ends have their gradients until all copies of both have the sum."""

    @property
    def crosses_wan(self) -> bool:
        """Whether the ends are in different data centers."""
        return self.here.name != self.there.name

    def ways(self) -> dict[tuple[str, str], tuple[float, int]]:
        """Between data centers: rate and connections, there and back."""
        ends = (self.here.name, self.there.name), (self.there.name, self.here.name)
        return dict(zip(ends, zip(self.rates, self.connections, strict=True), strict=True)) if self.crosses_wan else {}


def swap_between(
    cluster: Cluster,
    here: Datacenter,
    there: Datacenter,
    *,
    size_bytes: float,
    width: int,
    copies: int,
    connections: int | Literal["auto"],
) -> Swap:
    """Each of the `width` GPUs of a slot sends its part over its own channel; then each end tells its copies."""
    fabrics = [dc.fabric for dc in (here, there) if dc.fabric is not None]
    told_s = max((size_bytes / fabric.rate for fabric in fabrics), default=0.0) if copies > 1 else 0.0
    if here.name == there.name:
        rate, latency_s = (here.fabric.rate, here.fabric.latency_s) if here.fabric else (float("inf"), 0.0)
        rates, opened = (rate, rate), (1, 1)
    else:
        links = [cluster.link(here.name, there.name), cluster.link(there.name, here.name)]
        out, back = (min(rate_of(link, connections, width=width), limit(link.capacity)) for link in links)
        rates = out, back
        first, second = (connections_for(link) if connections == "auto" else connections for link in links)
        opened = first, second
        # An end goes on when what it sent is acknowledged.
        latency_s = sum(link.rtt_s or 0.0 for link in links) / 2
    total_s = size_bytes / min(rates) + latency_s + told_s
    return Swap(size_bytes=size_bytes, here=here, there=there, rates=rates, connections=opened, total_s=total_s)
