"""One channel of a pool: a thread that receives and one that sends.

The one that receives never waits for a channel to send, so members cannot wait for each other in a ring. The one that
sends keeps only so much in the channel's hands, and over the WAN hands it over no faster than a pair carries it: what
waits beyond that can still be overtaken by whose turn it is.
"""

import math
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Protocol

from geotrain.transport.errors import ClosedError, DeadlineError, FrameError, TransportError
from geotrain.transport.interface import Channel, Message
from geotrain.transport.pool.words import Item

_WAKE_UP_S = 0.02


class Owner(Protocol):
    """What a line asks of its pool; from the line's threads."""

    def arrived(self, line: int, message: Message) -> None:
        """A message has come."""

    def next_item(self, line: int) -> Item | None:
        """What goes next, waited for; None when there will be nothing more."""

    def lost(self, line: int, error: TransportError) -> None:
        """The channel is gone."""

    def look(self) -> None:
        """Time has passed."""


class Line:
    """Runs from `start` until the channel is lost or closed."""

    def __init__(
        self,
        number: int,
        channel: Channel,
        owner: Owner,
        *,
        ahead_bytes: int,
        tick_s: float,
        rate_bytes_per_s: float | None = None,
    ) -> None:
        self.channel = channel
        self._number = number
        self._owner = owner
        self._ahead_bytes = ahead_bytes
        self._tick_s = tick_s
        self._rate = rate_bytes_per_s or math.inf
        self._free_at_s = 0.0
        self._threads = [
            threading.Thread(target=work, name=f"pool {name} {channel.peer}", daemon=True)
            for name, work in (("from", self._receive), ("to", self._send))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the threads to end, after the channel was closed."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _receive(self) -> None:
        try:
            while True:
                with suppress(DeadlineError):
                    self._owner.arrived(self._number, self.channel.receive(deadline_s=self._tick_s))
                self._owner.look()
        except FrameError as error:
            self._fail(FrameError(f"{self.channel.peer}: {error}"))
        except TransportError as error:
            self._fail(error)
        except Exception as error:
            self._fail(TransportError(f"this side of the pool failed: {error!r}"))

    def _send(self) -> None:
        ahead: deque[tuple[int, int]] = deque()
        waiting_bytes = 0
        try:
            while (item := self._next_item()) is not None:
                header, data = item
                size_bytes = len(data)
                self._free_at_s = max(self._free_at_s, time.monotonic()) + size_bytes / self._rate
                number = None
                while number is None:
                    with suppress(DeadlineError):
                        number = self.channel.send(header, data, deadline_s=self._tick_s)
                del item, data
                ahead.append((number, size_bytes))
                waiting_bytes += size_bytes
                while waiting_bytes > self._ahead_bytes:
                    with suppress(DeadlineError):
                        self.channel.flush(deadline_s=self._tick_s, number=ahead[0][0])
                        waiting_bytes -= ahead.popleft()[1]
        except TransportError as error:
            self._fail(error)

    def _next_item(self) -> Item | None:
        """Not before the wire will be free, but for what it does while this thread wakes up."""
        early_s = self._free_at_s - time.monotonic() - _WAKE_UP_S
        if early_s > 0:
            time.sleep(early_s)
        return self._owner.next_item(self._number)

    def _fail(self, error: TransportError) -> None:
        self._owner.lost(self._number, error)
        if not isinstance(error, ClosedError):
            # Not here: closing may take its time, and the other thread ends by it.
            threading.Thread(target=self.channel.close, kwargs={"deadline_s": 0.0}, daemon=True).start()
