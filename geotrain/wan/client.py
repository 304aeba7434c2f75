"""The near side of a probe: round trips, then rates over 1, 2, 4, ... connections until that brings no more."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from geotrain.errors import RunError
from geotrain.transport import Identity, TcpChannel, connect
from geotrain.units import format_rate, format_seconds, plural
from geotrain.wan.figures import GROWTH, Probe, Step, Way
from geotrain.wan.meter import Meter
from geotrain.wan.talk import (
    LEAST_AHEAD_BYTES,
    LEAST_BUFFER_BYTES,
    MOST_AHEAD_BYTES,
    MOST_BUFFER_BYTES,
    MOST_CONNECTIONS,
    PATIENCE_S,
    Order,
    Poured,
    hear,
    pour,
    say,
    settings,
)

_TRIPS, _LEAST_TRIPS = 100, 9
_TRIPS_S = 1.0
_ROUND_TRIPS = 12
"""A connection gets up to speed in so many: its window doubles with each."""
_LEAST_SKIP_S = 0.25
_HICCUP = 0.95
_TURN_S = 4 * PATIENCE_S
"""How long the server may first do for others what they have asked for."""
_BUFFER_S = 0.01
"""Buffers are as large as what comes in so much time: small beside a measurement, large beside their cost."""

Tell = Callable[[str], None]


class Prober:
    """Knows where the server is and how to get in."""

    def __init__(self, host: str, port: int, *, identity: Identity, peer: str, seconds: float, tell: Tell) -> None:
        self._address = host, port
        self._identity = identity
        self._peer = peer
        self._seconds = seconds
        self._tell = tell
        self._rtt_s = 0.0

    def probe(self) -> Probe:
        """Measure everything; RunError or one of its kind if the server is not there or goes away."""
        trips = self._round_trips()
        self._rtt_s = sorted(trips)[len(trips) // 2]
        self._tell(f"round trip {format_seconds(self._rtt_s)}")
        ways = [self._way(there) for there in (True, False)]
        host, port = self._address
        secure = not self._identity.insecure
        return Probe(host=host, port=port, secure=secure, rtts_s=trips, there=ways[0], back=ways[1])

    @contextmanager
    def _channel(self, connections: int, order: Order) -> Iterator[TcpChannel]:
        channel = connect(
            *self._address,
            identity=self._identity,
            peer=self._peer,
            # A name of its own: a channel of the same name would end that of another probe.
            channel=f"probe {secrets.token_hex(8)}",
            settings=settings(connections),
            deadline_s=PATIENCE_S,
        )
        try:
            end_s = time.monotonic() + PATIENCE_S
            while (open_now := channel.counters.connections) < connections:
                if time.monotonic() > end_s:
                    raise RunError(
                        f"{self._peer}: only {open_now} of {plural(connections, 'connection')} could be opened"
                    )
                time.sleep(0.005)
            say(channel, order)
            yield channel
        finally:
            channel.close(deadline_s=0.0)

    def _round_trips(self) -> list[float]:
        trips: list[float] = []
        with self._channel(1, Order(do="echo", trips=_TRIPS)) as channel:
            end_s = time.monotonic() + _TRIPS_S
            while len(trips) < _TRIPS and (time.monotonic() < end_s or len(trips) < _LEAST_TRIPS):
                start_s = time.monotonic()
                say(channel, {})
                hear(channel, deadline_s=_TURN_S)
                trips.append(time.monotonic() - start_s)
        return trips[1:]

    def _way(self, there: bool) -> Way:
        # A first feeling for the rate, by which the buffers are cut.
        feel = self._measure(1, there, 0.0, seconds=min(0.2, self._seconds))
        steps: list[Step] = []
        expected, connections = feel.rate, 1
        while connections <= MOST_CONNECTIONS:
            step = self._step(connections, there, expected)
            if steps and step.rate < _HICCUP * steps[-1].rate:
                # More connections do not make a path slower: something else happened.
                again = self._step(connections, there, expected)
                step = max(step, again, key=lambda step: step.rate)
            steps.append(step)
            if len(steps) > 1 and step.rate <= GROWTH * steps[-2].rate:
                break
            expected, connections = 2 * step.rate, 2 * connections
        return Way(steps=steps)

    def _step(self, connections: int, there: bool, expected: float) -> Step:
        found = self._measure(connections, there, expected, self._seconds)
        words = f"{connections} connection{'s' * (connections > 1)}"
        self._tell(f"{'there' if there else 'back'}, {words}: {format_rate(found.rate)}")
        return Step(connections=connections, rate=found.rate, cores=found.cores, machine=found.machine)

    def _measure(self, connections: int, there: bool, expected: float, seconds: float) -> Poured:
        skip_s = max(_LEAST_SKIP_S, _ROUND_TRIPS * self._rtt_s)
        order = Order(
            do="drink" if there else "pour",
            seconds=seconds,
            skip_s=skip_s,
            buffer_bytes=_within(LEAST_BUFFER_BYTES, expected * _BUFFER_S, MOST_BUFFER_BYTES),
            ahead_bytes=_within(LEAST_AHEAD_BYTES, expected * (4 * self._rtt_s + 0.05), MOST_AHEAD_BYTES),
        )
        with self._channel(connections, order) as channel:
            if there:
                hear(channel, deadline_s=_TURN_S)
                found = pour(channel, order)
                say(channel, {})
                return found.beside(*_load(hear(channel, deadline_s=PATIENCE_S)))
            meter = Meter()
            word = hear(channel, deadline_s=_TURN_S + order.most_s)
            return _poured(word).beside(meter.cores(), meter.machine())


def _within(least: int, wanted: float, most: int) -> int:
    return min(most, max(least, int(wanted)))


def _poured(word: dict[str, Any]) -> Poured:
    rate = word.get("rate")
    if not isinstance(rate, int | float) or not rate > 0:
        raise RunError("the server's answer is no measurement; is it of another version?")
    cores, machine = _load(word)
    return Poured(rate=float(rate), cores=cores, machine=machine)


def _load(word: dict[str, Any]) -> tuple[float, float]:
    cores, machine = word.get("cores"), word.get("machine")
    if not isinstance(cores, int | float) or not isinstance(machine, int | float):
        raise RunError("the server's answer does not say how busy it was; is it of another version?")
    return float(cores), float(machine)
