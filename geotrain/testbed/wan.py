"""The commands for the WAN itself: TUN devices that the forwarder serves, or, where the kernel has netem, tc alone.

Pure, like the plumbing. With netem, a node's packets pass its own queue per peer (rate, delay, loss), its data
center's gate, and the veth pair to the other gate (capacity).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from geotrain.testbed.blueprint import Blueprint, Node, Space, Way
from geotrain.testbed.plumbing import SMALLEST_BURST_BYTES, Step, bytes_per_s, rate_line, seconds, window_route

PROBE = "qdisc add dev lo root netem delay 1ms"
"""Fails where the kernel has no netem."""
UNLIMITED = 125e9
"""htb wants a rate; no machine reaches this one."""
_TUN_QUEUE = 10000


def tun_steps(blueprint: Blueprint, *, carried: frozenset[str]) -> Iterator[Step]:
    """Routes over the device `wan`, which exists already, in every node."""
    for node in blueprint.nodes:
        lines = ["link set lo up", f"link set wan mtu {blueprint.mtu} txqueuelen {_TUN_QUEUE} up"]
        if node.dc in carried:
            own = next(site for site in blueprint.sites if site.dc == node.dc)
            lines += [f"addr add {node.address}/32 dev wan", f"route add {own.subnet} dev wan src {node.address}"]
        for site, window_bytes in blueprint.windows(node.dc):
            lines.append(f"route add {window_route(site, window_bytes)} dev wan src {node.address}")
        yield Step(node.space, "ip", tuple(lines))


def netem_steps(blueprint: Blueprint, path: Callable[[Space], str]) -> Iterator[Step]:
    """The whole WAN out of veth pairs, routes and queues."""
    for number, site in enumerate(blueprint.sites):
        yield Step(Space(site.dc), "ip", tuple(_gate_links(blueprint, number, path)))
    for number, site in enumerate(blueprint.sites):
        yield Step(Space(site.dc), "ip", tuple(_gate_routes(blueprint, number)))
        capacities = [
            rate_line(f"to{other}", way.capacity)
            for other, target in enumerate(blueprint.sites)
            if target != site and (way := blueprint.way(site.dc, target.dc)).capacity is not None
        ]
        if capacities:
            yield Step(Space(site.dc), "tc", tuple(capacities))
    for node in blueprint.nodes:
        yield Step(node.space, "ip", tuple(_node_routes(blueprint, node)))
        queues = _node_queues(blueprint, node)
        if queues:
            yield Step(node.space, "tc", tuple(queues))


def cut_step(blueprint: Blueprint, source: str, target: str, *, cut: bool) -> Step:
    """Let nothing through one direction of a netem WAN, or everything again."""
    number = [site.dc for site in blueprint.sites].index(target)
    subnet = blueprint.sites[number].subnet
    line = f"route replace blackhole {subnet}" if cut else f"route replace {_over_gate(number, subnet)}"
    return Step(Space(source), "ip", (line,))


def _gate_address(number: int) -> str:
    return f"169.254.1.{number + 1}"


def _over_gate(number: int, subnet: str) -> str:
    return f"{subnet} via {_gate_address(number)} dev to{number} onlink"


def _gate_links(blueprint: Blueprint, number: int, path: Callable[[Space], str]) -> Iterator[str]:
    mtu, site = blueprint.mtu, blueprint.sites[number]
    yield "link set lo up"
    yield f"addr add {_gate_address(number)}/32 dev lo"
    for node in blueprint.nodes:
        if node.dc == site.dc:
            port = f"w{node.index}"
            yield f"link add {port} mtu {mtu} type veth peer name wan mtu {mtu} netns {path(node.space)}"
            yield f"link set {port} up"
            yield f"route add {node.address}/32 dev {port}"
    for other in range(number + 1, len(blueprint.sites)):
        there = path(Space(blueprint.sites[other].dc))
        yield f"link add to{other} mtu {mtu} type veth peer name to{number} mtu {mtu} netns {there}"


def _gate_routes(blueprint: Blueprint, number: int) -> Iterator[str]:
    for other, target in enumerate(blueprint.sites):
        if other != number:
            yield f"link set to{other} up"
            yield f"route add {_over_gate(other, target.subnet)}"


def _node_routes(blueprint: Blueprint, node: Node) -> Iterator[str]:
    gate = _gate_address([site.dc for site in blueprint.sites].index(node.dc))
    if any(way.loss for way in blueprint.ways if way.source == node.dc):
        # netem would lose a large piece as a whole; a wire loses one segment.
        yield "link set wan gso_max_segs 1"
    yield "link set wan up"
    for site, window_bytes in blueprint.windows(node.dc):
        yield f"route add {window_route(site, window_bytes)} via {gate} dev wan onlink src {node.address}"


def _node_queues(blueprint: Blueprint, node: Node) -> list[str]:
    peers = [peer for peer in blueprint.nodes if peer.dc != node.dc]
    if not peers:
        return []
    lines = ["qdisc add dev wan root handle 1: htb"]
    for minor, peer in enumerate(peers, start=2):
        way = blueprint.way(node.dc, peer.dc)
        rate = UNLIMITED if way.pair_cap is None else way.pair_cap
        limit = bytes_per_s(rate)
        burst = f"burst {SMALLEST_BURST_BYTES} cburst {SMALLEST_BURST_BYTES}"
        lines += [
            f"class add dev wan parent 1: classid 1:{minor:x} htb rate {limit} ceil {limit} {burst} quantum 65536",
            f"qdisc add dev wan parent 1:{minor:x} handle {minor:x}: {_netem(blueprint, way, rate)}",
            f"filter add dev wan parent 1: protocol ip u32 match ip dst {peer.address}/32 flowid 1:{minor:x}",
        ]
    return lines


def _netem(blueprint: Blueprint, way: Way, rate: float) -> str:
    # netem's limit is in packets, and counts those that are only under way.
    under_way = rate * way.delay_s + way.queue_bytes(rate)
    packets = min(1_000_000, 1000 + round(under_way / blueprint.mtu))
    loss = f" loss random {way.loss:.6%}" if way.loss else ""
    return f"netem delay {seconds(way.delay_s)}{loss} limit {packets}"
