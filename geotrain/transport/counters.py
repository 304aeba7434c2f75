"""What has happened on a channel or a listener, as numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Counters:
    """A snapshot; everything only grows, except `connections`."""

    buffers_sent: int = 0
    buffers_received: int = 0
    bytes_sent: int = 0
    """Bytes of data that the peer has acknowledged."""
    bytes_received: int = 0
    """Bytes of data that the application has received."""
    frames_sent: int = 0
    frames_received: int = 0
    resends: int = 0
    """Pieces sent again because their connection died."""
    duplicates: int = 0
    """Pieces that arrived twice and were dropped."""
    reconnects: int = 0
    """Connections that died and were replaced."""
    malformed: int = 0
    """Connections closed because of what came over them."""
    connections: int = 0
    """Open now."""


@dataclass(frozen=True, kw_only=True)
class ListenerCounters:
    """A snapshot of what a listener has seen; everything only grows."""

    accepted: int = 0
    """Connections that became part of a channel."""
    refused: int = 0
    """Another job, version, certificate or session, or too many at once."""
    malformed: int = 0
    """What came was no greeting."""
    timed_out: int = 0
    """No greeting within the time set."""
