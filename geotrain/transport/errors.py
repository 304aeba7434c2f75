"""What can go wrong between two nodes.

RunError                     exit code 1
└── TransportError
    ├── FrameError           bytes that are no frame, or a frame that breaks the protocol
    │   └── VersionError     a frame of another version of the protocol
    ├── RefusedError         the two sides do not belong together: job, certificate, version, session
    ├── DeadlineError        a call took longer than it was allowed to
    ├── PeerLostError        the peer has been silent for longer than `peer_timeout_s`, or has started anew
    └── ClosedError          this side or the peer has closed the channel
"""

import ssl

from geotrain.errors import RunError


class TransportError(RunError):
    """Base of all of them."""


class FrameError(TransportError):
    """The peer sent something that it must not send."""


class VersionError(FrameError):
    """The peer speaks another version of the protocol."""


class RefusedError(TransportError):
    """One side does not let the other in."""


class DeadlineError(TransportError):
    """The time that the caller gave is over; the channel is as good as before."""


class PeerLostError(TransportError):
    """The peer is gone; so is the channel."""


class ClosedError(TransportError):
    """The channel was closed."""


def plain(error: Exception) -> str:
    """What went wrong in words, without the numbers that errors of the system and of TLS have."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
