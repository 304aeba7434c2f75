"""A pool promises what every channel promises: the channel's own tests, on a member of a pool of three."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from geotrain.transport import Channel, Settings
from tests.transport import test_channel
from tests.transport.pairs import QUICK
from tests.transport.pool.cells import SMALL, cells

globals().update({name: test for name, test in vars(test_channel).items() if name.startswith("test_")})


@pytest.fixture
def pair():
    @contextmanager
    def make(settings: Settings = QUICK) -> Iterator[tuple[Channel, Channel]]:
        pooling = replace(SMALL, window_bytes=settings.window_bytes, max_buffer_bytes=settings.max_buffer_bytes)
        with cells(3, pooling, names={"n1": "a", "f1": "b"}) as made:
            yield made.near[1], made.far[1]

    return make
