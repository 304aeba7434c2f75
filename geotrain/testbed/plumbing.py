"""The commands that make nodes, fabrics and routes out of empty namespaces; the part that both kinds of WAN share.

Pure: lists of lines for `ip -batch` and `tc -batch`, by namespace. Who runs them is the builder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from geotrain.testbed.blueprint import Blueprint, FabricSpec, Site, Space, Way

Tool = Literal["ip", "tc"]
SMALLEST_BURST_BYTES = 256 * 1024
BURST_S = 0.0005
FABRIC_QUEUE_S = 0.01
VETH_LATENCY_S = 0.0002
"""A fabric latency up to this is no more than what two veth devices and a bridge add on a busy machine."""
WINDOW_BUFFERS = 4
"""Socket buffer per byte of TCP window: the kernel counts the memory of packets, not their content."""
TIGHT_BUFFERS = 1.05
"""The same where packets come in large pieces and the kernel has noticed."""
CONGESTION = "net/ipv4/tcp_congestion_control"
CONGESTION_CONTROLS = ("reno", "cubic")
"""Tried in this order: the last that the machine grants a namespace stays. All grant reno, most grant cubic."""
DEFAULT_BUFFER_BYTES, MOST_BUFFER_BYTES = 8 << 20, 512 << 20


@dataclass(frozen=True)
class Step:
    """Lines for one tool, to be run inside one namespace."""

    space: Space
    tool: Tool
    lines: tuple[str, ...]


def gates(blueprint: Blueprint) -> list[Space]:
    """One namespace per data center, where the veth pairs of its nodes meet."""
    return [Space(site.dc) for site in blueprint.sites]


def fabric_steps(
    blueprint: Blueprint, path: Callable[[Space], str], *, carried: frozenset[str], netem: bool
) -> Iterator[Step]:
    """A bridge per data center with a veth to every node, at the fabric's rate; `path` names a namespace for `ip`."""
    for site in blueprint.sites:
        if site.dc in carried:
            continue
        here = [node for node in blueprint.nodes if node.dc == site.dc]
        lines = ["link set lo up", "link add fabric type bridge", f"link set fabric mtu {blueprint.mtu} up"]
        for node in here:
            lines += [
                f"link add n{node.index} mtu {blueprint.mtu} type veth"
                f" peer name fabric mtu {blueprint.mtu} netns {path(node.space)}",
                f"link set n{node.index} master fabric up",
            ]
        yield Step(Space(site.dc), "ip", tuple(lines))
        for node in here:
            lines = ["link set lo up", f"addr add {node.address}/16 dev fabric", "link set fabric up"]
            yield Step(node.space, "ip", tuple(lines))
        limit = shape_lines("fabric", site.fabric, netem=netem)
        if limit:
            yield from (Step(node.space, "tc", tuple(limit)) for node in here)
        if site.fabric.rate is not None:
            ports = [rate_line(f"n{node.index}", site.fabric.rate) for node in here]
            yield Step(Space(site.dc), "tc", tuple(ports))


def shape_lines(device: str, fabric: FabricSpec, *, netem: bool) -> list[str]:
    """What a node may send into its fabric, and how long that takes."""
    if not netem or fabric.latency_s <= VETH_LATENCY_S:
        return [] if fabric.rate is None else [rate_line(device, fabric.rate)]
    rate = "" if fabric.rate is None else f" rate {bytes_per_s(fabric.rate)}"
    return [f"qdisc add dev {device} root netem delay {seconds(fabric.latency_s)} limit 10000{rate}"]


def rate_line(device: str, rate: float) -> str:
    """A token bucket with a short queue."""
    burst = max(SMALLEST_BURST_BYTES, round(rate * BURST_S))
    limit = burst + max(4 * SMALLEST_BURST_BYTES, round(rate * FABRIC_QUEUE_S))
    return f"qdisc add dev {device} root tbf rate {bytes_per_s(rate)} burst {burst} limit {min(limit, 2**31)}"


def bytes_per_s(rate: float) -> str:
    """A rate for tc."""
    # tc reads "bps" as bytes per second.
    return f"{max(1, round(rate))}bps"


def seconds(value: float) -> str:
    """A time for tc."""
    return f"{value:.6f}s"


def window_route(site: Site, window_bytes: int | None) -> str:
    """The route attributes towards a data center: the window a connection from there may fill."""
    return f"{site.subnet}" if window_bytes is None else f"{site.subnet} window {window_bytes}"


def sysctls(blueprint: Blueprint, dc: str, *, tight: bool = False) -> dict[str, str]:
    """Kernel parameters of a node: buffers that let windows and rates be what the file says, a stated TCP.

    Tight: the receive buffer itself holds the window down, to the largest one that this data center's links have.
    """
    receive = _buffer([way for way in blueprint.ways if way.target == dc])
    send = _buffer([way for way in blueprint.ways if way.source == dc])
    windows = [window for _, window in blueprint.windows(dc) if window is not None]
    if tight and len(windows) == len(blueprint.sites) - 1:
        receive = round(TIGHT_BUFFERS * max(windows, default=receive))
    return {
        "net/ipv4/tcp_rmem": f"4096 {receive} {receive}",
        "net/ipv4/tcp_wmem": f"4096 65536 {send}",
        # A receive buffer of full size from the start; growing it would also undo the window of the route.
        "net/ipv4/tcp_moderate_rcvbuf": "0",
        "net/ipv4/tcp_slow_start_after_idle": "0",
        "net/ipv4/tcp_no_metrics_save": "1",
    }


def _buffer(ways: list[Way]) -> int:
    needs = [
        way.window_bytes if way.window_bytes is not None else (way.pair_cap or 0.0) * way.round_trip_s for way in ways
    ]
    return min(MOST_BUFFER_BYTES, max(DEFAULT_BUFFER_BYTES, round(WINDOW_BUFFERS * max(needs, default=0.0))))
