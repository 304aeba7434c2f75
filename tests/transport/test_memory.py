import time

import pytest

from geotrain.transport import DeadlineError, PeerLostError
from geotrain.transport.memory import memory_pair
from tests.transport.pairs import header


def test_delay_and_rate_make_the_time():
    a, b = memory_pair(delay_s=0.05, rate_bytes_per_s=1e6)
    start = time.monotonic()
    for n in range(2):
        a.send(header(n), bytes(50_000), deadline_s=30)
    arrivals = []
    for _ in range(2):
        b.receive(deadline_s=30)
        arrivals.append(time.monotonic() - start)
    # Never sooner; a busy machine may take longer, but not ten times.
    assert 0.1 <= arrivals[0] < 1.0 and 0.15 <= arrivals[1] < 1.5


def test_a_buffer_on_its_way_is_not_there_yet():
    a, b = memory_pair(delay_s=60)
    a.send(header(), b"", deadline_s=30)
    with pytest.raises(DeadlineError):
        b.receive(deadline_s=0.01)
    with pytest.raises(DeadlineError):
        a.flush(deadline_s=0.01)


def test_a_lost_peer_ends_every_call():
    a, b = memory_pair("east", "south")
    a.send(header(), b"", deadline_s=30)
    b.lose_peer()
    for call in (lambda: b.receive(deadline_s=30), lambda: b.send(header(), b"", deadline_s=30)):
        with pytest.raises(PeerLostError, match=r"^east: lost$"):
            call()
