"""Channels between two nodes of one process, for tests."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from geotrain.transport import Identity, Listener, Settings, TcpChannel, connect
from geotrain.transport.header import Direction, Header

QUICK = Settings(connections=2, peer_timeout_s=20.0, handshake_timeout_s=10.0, max_backoff_s=0.1, chunk_bytes=64 << 10)
"""Comes back at once; any process of a busy machine may stand still for some seconds."""
IMPATIENT = replace(QUICK, peer_timeout_s=2.0)
"""For tests whose subject is silence."""
JOB = "j"


def header(microbatch: int = 0) -> Header:
    return Header(job=JOB, step=1, pipeline=2, stage=3, microbatch=microbatch, direction=Direction.FORWARD)


def insecure(node: str, job: str = JOB) -> Identity:
    return Identity(job=job, node=node, insecure=True)


def soon(condition: Callable[[], bool], within_s: float = 30.0) -> bool:
    """Whether it becomes true, for what another thread does after it has answered."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        threading.Event().wait(0.002)
    return True


@contextmanager
def tcp_pair(settings: Settings = QUICK, **identities: Identity) -> Iterator[tuple[TcpChannel, TcpChannel]]:
    """The ends a (which dialed) and b (which listened)."""
    first, second = identities.get("a", insecure("a")), identities.get("b", insecure("b"))
    with Listener(identity=second, settings=settings) as listener:
        host, port = listener.address
        one = connect(host, port, identity=first, peer="b", channel="c", settings=settings, deadline_s=30)
        with one, listener.accept(deadline_s=30) as other:
            yield one, other
