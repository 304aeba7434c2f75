"""The far side of a probe: measures for one client at a time, so that two probes never measure each other.

A client has its turn for a limited time, whatever it does: its round trips for 30 s, a rate for eight times the seconds
that it asks for and 75 s more, which is 10 minutes at most.
"""

import threading
import time
from collections.abc import Callable

from geotrain.errors import GeotrainError
from geotrain.transport import Channel, ClosedError, DeadlineError, Identity, Listener, TransportError
from geotrain.wan.meter import Meter
from geotrain.wan.talk import MOST_CONNECTIONS, PATIENCE_S, Order, hear, pour, say, settings

_FIRST_WORD_S = 2 * PATIENCE_S
"""A client that has opened a channel and says nothing is sent away: it may take its time to open all connections, and
some more where its machine is busy. Others do not wait for it."""
_ECHO_S = 2 * PATIENCE_S
"""For all round trips of a client together."""
_TURN_S = 0.5
_MOST_CLIENTS = 16
"""Each may have sent a window of bytes before its turn has come."""


class Server:
    """Listens from the moment it is made; `serve` answers until `close`."""

    def __init__(self, *, identity: Identity, host: str, port: int, tell: Callable[[str], None]) -> None:
        self._listener = Listener(identity=identity, settings=settings(MOST_CONNECTIONS), host=host, port=port)
        self._tell = tell
        self._closed = False
        self._lock = threading.Lock()
        self._clients: dict[Channel, threading.Thread] = {}
        self._measuring = threading.Lock()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._listener.address

    def serve(self) -> None:
        """Answer every channel until the server is closed."""
        while not self._closed:
            try:
                channel = self._listener.accept(deadline_s=_TURN_S)
            except DeadlineError:
                continue
            except ClosedError:
                return
            thread = threading.Thread(target=self._answer, args=(channel,), name=f"probe {channel.peer}", daemon=True)
            with self._lock:
                if welcome := len(self._clients) < _MOST_CLIENTS:
                    self._clients[channel] = thread
                    thread.start()
            if not welcome:
                self._tell(f"{channel.peer}: sent away, {_MOST_CLIENTS} clients are here already")
                channel.close(deadline_s=0.0)

    def close(self) -> None:
        """Let nobody in any more, and end what is being measured."""
        self._closed = True
        self._listener.close()
        with self._lock:
            clients = dict(self._clients)
        for channel in clients:
            channel.close(deadline_s=0.0)
        for thread in clients.values():
            thread.join()

    def _answer(self, channel: Channel) -> None:
        try:
            order = Order.checked(hear(channel, deadline_s=_FIRST_WORD_S))
            with self._measuring:
                self._measure(channel, order)
        except ClosedError:
            pass  # A client that has heard enough hangs up.
        except GeotrainError as error:
            self._tell(f"{channel.peer}: {error}")
        finally:
            channel.close(deadline_s=0.0)
            with self._lock:
                del self._clients[channel]

    def _measure(self, channel: Channel, order: Order) -> None:
        if order.do == "echo":
            self._tell(f"{channel.peer}: a probe begins")
            end_s = time.monotonic() + _ECHO_S
            for _ in range(order.trips):
                if (left_s := end_s - time.monotonic()) <= 0:
                    raise DeadlineError(f"not done with its round trips within {_ECHO_S:g} s")
                say(channel, hear(channel, deadline_s=min(PATIENCE_S, left_s)))
        elif order.do == "drink":
            # Not before this one's turn has come: what it pours would be measured by the one whose turn it is.
            say(channel, {})
            meter = Meter()
            hear(channel, deadline_s=order.most_s)
            say(channel, {"cores": meter.cores(), "machine": meter.machine()})
        else:
            say(channel, pour(channel, order))
        _until_closed(channel)


def _until_closed(channel: Channel) -> None:
    """The client has what it wants and hangs up; what it still sends is thrown away."""
    end_s = time.monotonic() + PATIENCE_S
    try:
        while (left_s := end_s - time.monotonic()) > 0:
            channel.receive(deadline_s=left_s)
    except TransportError:
        return
