"""Half-open connections of a listener: how many each address may have, and which one makes way for another.

A connection is half-open from the accept to the end of its greeting. A newcomer takes the place of the oldest one of an
address that holds too many, so that silent connections of one address keep no other out. An address from which a
greeting has succeeded is known and goes first: it makes way for other known ones only.
"""

import ipaddress
import threading
from collections import Counter

from geotrain.transport.greeting import Greeting

_SHARE = 4
"""An address that is not known gets one of so many parts of the places."""
_MOST_KNOWN = 1024


class Admission:
    """Places for half-open connections; any thread may call."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._share = max(1, places // _SHARE)
        self._lock = threading.Lock()
        self._open: dict[Greeting, str] = {}
        self._known: dict[str, None] = {}

    def enter(self, greeting: Greeting, host: str) -> bool:
        """Give a new connection a place, if need be that of another, which is dropped; False if there is none."""
        origin = _origin(host)
        with self._lock:
            held = Counter(self._open.values())
            known = origin in self._known
            if not known and held[origin] >= self._share:
                self._drop_oldest(origin)
            elif len(self._open) >= self._places:
                strangers = [one for one in held if one not in self._known]
                if not strangers and not known:
                    return False
                self._drop_oldest(max(strangers or held, key=lambda one: held[one]))
            self._open[greeting] = origin
            return True

    def leave(self, greeting: Greeting) -> None:
        """Free the place of a connection that is half-open no more."""
        with self._lock:
            self._open.pop(greeting, None)

    def know(self, host: str) -> None:
        """Put this address before those from which no greeting has succeeded."""
        origin = _origin(host)
        with self._lock:
            self._known.pop(origin, None)
            self._known[origin] = None
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def _drop_oldest(self, origin: str) -> None:
        oldest = next(greeting for greeting, one in self._open.items() if one == origin)
        del self._open[oldest]
        oldest.drop()


def _origin(host: str) -> str:
    """The address, or the network of an IPv6 address, all of which one machine may use."""
    address = ipaddress.ip_address(host)
    return host if address.version == 4 else str(ipaddress.ip_network((int(address), 64), strict=False))
