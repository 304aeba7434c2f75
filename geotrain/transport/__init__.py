"""Real bytes between nodes: ordered, reliable buffers over many TCP connections, and a twin in memory for tests."""

from geotrain.transport.channel import TcpChannel
from geotrain.transport.counters import Counters, ListenerCounters
from geotrain.transport.dialer import connect
from geotrain.transport.errors import (
    ClosedError,
    DeadlineError,
    FrameError,
    PeerLostError,
    RefusedError,
    TransportError,
    VersionError,
)
from geotrain.transport.greeting import Identity
from geotrain.transport.header import Direction, Header
from geotrain.transport.interface import Channel, Message
from geotrain.transport.listener import Listener
from geotrain.transport.settings import Settings
from geotrain.transport.tls import Credentials

__all__ = [
    "Channel",
    "ClosedError",
    "Counters",
    "Credentials",
    "DeadlineError",
    "Direction",
    "FrameError",
    "Header",
    "Identity",
    "Listener",
    "ListenerCounters",
    "Message",
    "PeerLostError",
    "RefusedError",
    "Settings",
    "TcpChannel",
    "TransportError",
    "VersionError",
    "connect",
]
