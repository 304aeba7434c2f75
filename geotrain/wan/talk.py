"""What probe and server say to each other over a channel, and the two halves of a measurement.

A word is a small JSON object; data is noise of no meaning. Whoever pours also measures,
in the same way on both sides. Every wait has a deadline.
"""

import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from geotrain.errors import GeotrainError, RunError
from geotrain.transport import Channel, DeadlineError, Direction, Header, Settings
from geotrain.wan.meter import Meter

JOB = "wan-probe"
MOST_CONNECTIONS = 64
PATIENCE_S = 15.0
"""How long one side waits for the other beyond what was agreed on."""
MOST_S = 60.0
MOST_BUFFER_BYTES = 4 << 20
LEAST_BUFFER_BYTES = 64 << 10
LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES = 4 << 20, 448 << 20
MOST_TRIPS = 1000
_SLOWEST, _LEAST_LIMIT_S = 8, 10.0
"""A measurement goes on for so many times its seconds until enough has come, and for longer than a machine stalls."""
_LEAST_CHANGES = 5
_SAMPLE_S = 0.004
_TURN_S = 0.2


def settings(connections: int) -> Settings:
    """Of the channel with so many connections; the server takes all that come."""
    return Settings(
        connections=connections,
        max_connections=MOST_CONNECTIONS,
        max_buffer_bytes=MOST_BUFFER_BYTES,
        # Streams have no last piece to wait for: coarse pieces cost less.
        min_chunk_bytes=128 << 10,
        peer_timeout_s=10.0,
    )


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the client asks the server for, once per channel."""

    do: Literal["echo", "drink", "pour"]
    seconds: float = 1.0
    skip_s: float = 0.0
    buffer_bytes: int = LEAST_BUFFER_BYTES
    ahead_bytes: int = LEAST_AHEAD_BYTES
    """What the one who pours keeps on its way: more than the path holds, but not what takes long to clear away."""
    trips: int = 0

    @property
    def limit_s(self) -> float:
        """When the one who pours gives up."""
        return self.skip_s + max(_LEAST_LIMIT_S, _SLOWEST * self.seconds)

    @property
    def most_s(self) -> float:
        """How long the other side waits for it to be done."""
        return PATIENCE_S + self.limit_s

    @classmethod
    def checked(cls, word: dict[str, Any]) -> "Order":
        """An order from outside; RunError unless everything in it is within bounds."""
        try:
            order = cls(**word)
            whole = (order.buffer_bytes, order.ahead_bytes, order.trips)
            good = (
                order.do in ("echo", "drink", "pour")
                and all(type(number) is int for number in whole)
                and 0 < order.seconds <= MOST_S
                and 0 <= order.skip_s <= MOST_S
                and LEAST_BUFFER_BYTES <= order.buffer_bytes <= MOST_BUFFER_BYTES
                and LEAST_AHEAD_BYTES <= order.ahead_bytes <= MOST_AHEAD_BYTES
                and 0 <= order.trips <= MOST_TRIPS
            )
        except TypeError:
            good = False
        if not good:
            raise RunError("the peer asks for something that no probe asks for; is it of another version?")
        return order


@dataclass(frozen=True, kw_only=True)
class Poured:
    """What came of a stream."""

    rate: float
    cores: float
    machine: float

    def beside(self, cores: float, machine: float) -> "Poured":
        """With the load of the other side: the busier one counts."""
        return Poured(rate=self.rate, cores=max(self.cores, cores), machine=max(self.machine, machine))


def say(channel: Channel, word: dict[str, Any] | Order | Poured) -> None:
    """Send a word."""
    plain = word if isinstance(word, dict) else asdict(word)
    channel.send(_header(stage=0), json.dumps(plain).encode(), deadline_s=PATIENCE_S)


def hear(channel: Channel, *, deadline_s: float) -> dict[str, Any]:
    """The next word; data before it is thrown away, but not for longer than the deadline."""
    end_s = time.monotonic() + deadline_s
    while (message := channel.receive(deadline_s=max(0.0, end_s - time.monotonic()))).header.stage != 0:
        # What has arrived is received whatever the time: a peer that never stops sending would be heard forever.
        if time.monotonic() > end_s:
            raise DeadlineError(f"{channel.peer}: sent data and no word within {deadline_s:g} s")
    try:
        word = json.loads(bytes(message.data))
    except (ValueError, RecursionError):
        word = None
    if not isinstance(word, dict):
        raise RunError(f"{channel.peer}: says something that is no word of a probe")
    return word


def pour(channel: Channel, order: Order) -> Poured:
    """Send data as fast as it goes for some time; the first `skip_s` seconds do not count.

    Counts what the peer has acknowledged, over any connection: in order, a late piece would hold back all after it.
    """
    stop = threading.Event()
    failures: list[GeotrainError] = []
    thread = threading.Thread(target=_keep_sending, args=(channel, order, stop, failures), name="pour", daemon=True)
    thread.start()
    try:
        return _watch(channel, order, failures)
    finally:
        stop.set()
        thread.join(_TURN_S * 5)


def _keep_sending(channel: Channel, order: Order, stop: threading.Event, failures: list[GeotrainError]) -> None:
    # Noise: a path may compress.
    data = os.urandom(order.buffer_bytes)
    ahead = max(2, order.ahead_bytes // order.buffer_bytes)
    number = 0
    try:
        while not stop.is_set():
            with suppress(DeadlineError):
                channel.flush(deadline_s=_TURN_S, number=max(-1, number - ahead))
                number = channel.send(_header(stage=1), data, deadline_s=_TURN_S)
    except GeotrainError as error:
        failures.append(error)


def _watch(channel: Channel, order: Order, failures: list[GeotrainError]) -> Poured:
    begin_s = time.monotonic()
    seen = first = channel.counters.bytes_sent
    first_s = last_s = begin_s
    meter, changes = Meter(), -1
    while changes < _LEAST_CHANGES or last_s < begin_s + order.skip_s + order.seconds:
        time.sleep(_SAMPLE_S)
        if failures:
            raise failures[0]
        now_s = time.monotonic()
        if now_s > begin_s + order.limit_s:
            raise RunError(
                f"{channel.peer}: too little arrived in {order.limit_s:.3g} s to measure a rate: give more seconds"
            )
        if (sent := channel.counters.bytes_sent) == seen:
            continue
        seen = sent
        if changes < 0 and now_s >= begin_s + order.skip_s:
            first, first_s, meter, changes = sent, now_s, Meter(), 0
        elif changes >= 0:
            last_s, changes = now_s, changes + 1
    rate = (seen - first) / (last_s - first_s)
    return Poured(rate=rate, cores=meter.cores(), machine=meter.machine())


def _header(stage: int) -> Header:
    return Header(job=JOB, step=0, pipeline=0, stage=stage, microbatch=0, direction=Direction.FORWARD)
