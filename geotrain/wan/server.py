"""The far side of a probe: does what one client at a time asks for, so that two probes never measure each other."""

import time
from collections.abc import Callable

from geotrain.errors import RunError
from geotrain.transport import Channel, ClosedError, DeadlineError, Identity, Listener, TransportError
from geotrain.wan.meter import Meter
from geotrain.wan.talk import MOST_CONNECTIONS, PATIENCE_S, Order, hear, pour, say, settings

_FIRST_WORD_S = 2 * PATIENCE_S
"""A client that has opened a channel and says nothing is sent away: it may take its time to open all connections, and
some more where its machine is busy. Others who wait meanwhile have more patience than that."""
_TURN_S = 0.5


class Server:
    """Listens from the moment it is made; `serve` answers until `close`."""

    def __init__(self, *, identity: Identity, host: str, port: int, tell: Callable[[str], None]) -> None:
        self._listener = Listener(identity=identity, settings=settings(MOST_CONNECTIONS), host=host, port=port)
        self._tell = tell
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._listener.address

    def serve(self) -> None:
        """Answer one channel after the other until the server is closed."""
        while not self._closed:
            try:
                channel = self._listener.accept(deadline_s=_TURN_S)
            except DeadlineError:
                continue
            except ClosedError:
                return
            try:
                _answer(channel, self._tell)
            except ClosedError:
                pass  # A client that has heard enough hangs up.
            except RunError as error:
                self._tell(f"{channel.peer}: {error}")
            finally:
                channel.close(deadline_s=0.0)

    def close(self) -> None:
        """Let nobody in any more."""
        self._closed = True
        self._listener.close()


def _answer(channel: Channel, tell: Callable[[str], None]) -> None:
    order = Order.checked(hear(channel, deadline_s=_FIRST_WORD_S))
    if order.do == "echo":
        tell(f"{channel.peer}: a probe begins")
        for _ in range(order.trips):
            say(channel, hear(channel, deadline_s=PATIENCE_S))
    elif order.do == "drink":
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
