"""The WAN in userspace: moves packets between the nodes' TUN devices, late, at a rate, and not all of them.

One thread, one process. The decisions are the shaper's; here are the devices and the clock.
"""

from __future__ import annotations

import ipaddress
import math
import os
import random
import select
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from geotrain.testbed.blueprint import Blueprint, Node, Way
from geotrain.testbed.packet import ROUTE, TcpWindows, cut, is_bare_ack, is_tcp, num_segments, wire_bytes
from geotrain.testbed.shaper import Lane, Line, Shaper
from geotrain.testbed.tun import MOST_BYTES

PACKETS_AT_ONCE = 16
"""Read from one device before the others get their turn and arrivals are delivered."""
_LONGEST_WAIT_S = 1.0
_MOST_EARLY_S, _EARLY_WEIGHT = 0.0002, 0.05


class Ends(NamedTuple):
    """Between which devices a lane runs, and how much a TCP receiver at its source may ask for."""

    source: int
    target: int
    window_bytes: int | None


class Forwarder:
    """Packets of `devices`, by node; data centers in `carried` have their inner traffic here too."""

    def __init__(self, blueprint: Blueprint, devices: Mapping[Node, int], carried: frozenset[str] = frozenset()):
        self.lines: dict[tuple[str, str], Line] = {}
        self.strays = 0
        self._devices = list(devices.values())
        self._shaper = Shaper()
        self._windows = TcpWindows()
        self._lanes: dict[bytes, Lane] = {}
        self._ready = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        for way in blueprint.ways:
            self.lines[way.source, way.target] = _line(way, blueprint.seed)
        for source in devices:
            inner = _inner_line(blueprint, source) if source.dc in carried else None
            for target in devices:
                if target != source and (target.dc != source.dc or inner is not None):
                    self._lanes[_route(source, target)] = self._lane(blueprint, source, target, devices, inner)
        for device in self._devices:
            self._ready.register(device, select.EPOLLIN)

    def _lane(
        self, blueprint: Blueprint, source: Node, target: Node, devices: Mapping[Node, int], inner: Line | None
    ) -> Lane:
        if source.dc == target.dc:
            assert inner is not None
            return Lane(line=inner, place=Ends(devices[source], devices[target], None))
        way = blueprint.way(source.dc, target.dc)
        back = blueprint.way(target.dc, source.dc)
        ends = Ends(devices[source], devices[target], back.window_bytes)
        line = self.lines[source.dc, target.dc]
        if way.pair_cap is None:
            return Lane(line=line, place=ends)
        return Lane(line=line, rate=way.pair_cap, queue_s=way.queue_bytes(way.pair_cap) / way.pair_cap, place=ends)

    def watch(self, file: int, callback: Callable[[], None]) -> None:
        """Call back, between packets, when the file can be read."""
        self._ready.register(file, select.EPOLLIN)
        self._callbacks[file] = callback

    def unwatch(self, file: int) -> None:
        """Call back no more."""
        self._ready.unregister(file)
        del self._callbacks[file]

    def counters(self) -> list[dict[str, Any]]:
        """What each direction has carried, dropped and lost so far."""
        return [
            {
                "from": source,
                "to": target,
                "packets": line.counters.packets,
                "bytes": line.counters.bytes,
                "dropped": line.counters.dropped,
                "lost": line.counters.lost,
                "cut": line.cut,
            }
            for (source, target), line in self.lines.items()
        ]

    def set_cut(self, source: str, target: str, cut: bool) -> None:
        """Let nothing through from `source` to `target`, or everything again."""
        self.lines[source, target].cut = cut

    def run(self) -> None:
        """Forward for ever; ends with an exception of a callback or a signal handler."""
        shaper, ready, clock = self._shaper, self._ready, time.monotonic
        early = 0.0
        while True:
            now = clock()
            due = shaper.next_at()
            if due <= now + early:
                # Waking up takes its time: aim ahead by what it took lately, so that packets are on time on average.
                early += (min(max(now - due + early, 0.0), _MOST_EARLY_S) - early) * _EARLY_WEIGHT
                for lane, packet in shaper.due(now + early):
                    self._deliver(lane, packet)
                due = shaper.next_at()
            wait = min(due - early - clock(), _LONGEST_WAIT_S)
            if wait > 0:
                # epoll in Python counts in milliseconds; select does in microseconds, and can wait for an epoll.
                select.select([ready], [], [], wait)
            for file, _ in ready.poll(0):
                callback = self._callbacks.get(file)
                if callback is None:
                    self._take(file)
                else:
                    callback()

    def _take(self, device: int) -> None:
        lanes, now = self._lanes, time.monotonic()
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(device, MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                # Somebody inside has deleted the device: that node is off the WAN.
                self._ready.unregister(device)
                return
            lane = lanes.get(packet[ROUTE])
            if lane is None or lane.place.source != device:
                self.strays += 1
                continue
            if lane.place.window_bytes is not None and is_tcp(packet):
                packet = self._windows.limited(packet, lane.place.window_bytes)
            segments = num_segments(packet)
            line = lane.line
            if segments >= line.until_loss:
                self._push_rest(now, lane, segments, packet)
                continue
            line.until_loss -= segments
            if is_bare_ack(packet):
                self._shaper.overtake(now, lane, wire_bytes(packet, 1), packet)
            else:
                self._shaper.push(now, lane, wire_bytes(packet, segments), segments, packet)

    def _push_rest(self, now: float, lane: Lane, segments: int, packet: bytes) -> None:
        """What is left of a packet that random loss has hit."""
        line, start = lane.line, 0
        while segments - start >= line.until_loss:
            lost = start + line.until_loss - 1
            self._push_part(now, lane, packet, start, lost)
            line.counters.lost += 1
            line.until_loss = line.draw()
            start = lost + 1
        line.until_loss -= segments - start
        self._push_part(now, lane, packet, start, segments)

    def _push_part(self, now: float, lane: Lane, packet: bytes, start: int, end: int) -> None:
        if end > start:
            part = cut(packet, start, end)
            self._shaper.push(now, lane, wire_bytes(part, end - start), end - start, part)

    def _deliver(self, lane: Lane, packet: bytes) -> None:
        try:
            os.write(lane.place.target, packet)
        except OSError:
            # The device is down, or the kernel is out of memory: a lost packet, as on any wire.
            lane.line.counters.dropped += 1


def _line(way: Way, seed: int) -> Line:
    name = (way.source, way.target)
    luck = random.Random(f"{seed} {name}")
    capacity = math.inf if way.capacity is None else way.capacity
    queue = math.inf if way.capacity is None else way.queue_bytes(way.capacity)
    return Line(name=name, delay_s=way.delay_s, capacity=capacity, queue_bytes=queue, loss=way.loss, luck=luck)


def _inner_line(blueprint: Blueprint, source: Node) -> Line:
    fabric = next(site.fabric for site in blueprint.sites if site.dc == source.dc)
    rate = math.inf if fabric.rate is None else fabric.rate
    return Line(name=(source.dc, source.dc), delay_s=fabric.latency_s, capacity=rate, queue_bytes=64e6)


def _route(source: Node, target: Node) -> bytes:
    return ipaddress.ip_address(source.address).packed + ipaddress.ip_address(target.address).packed
