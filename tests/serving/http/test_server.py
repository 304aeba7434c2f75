"""Listening, and where it is refused."""

import asyncio
import socket

import openai
import pytest

from geotrain.errors import InputError
from geotrain.serving.http.auth import Keys
from geotrain.serving.http.limits import Limits
from geotrain.serving.http.server import listening
from geotrain.serving.metrics import Metrics
from tests.serving.http.toy import Toy, served

KEYS = Keys.parse("sk-0123456789abcdef", source="keys")


async def listen(host: str, port: int, keys: Keys) -> None:
    async def app(scope: object, receive: object, send: object) -> None: ...

    async with listening(app, host=host, port=port, keys=keys, limits=Limits(), metrics=Metrics(), left_s=lambda: 1.0):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_keys_nobody_from_outside(host: str):
    with pytest.raises(InputError, match=f"host: {host} can be reached by others, so API keys are needed"):
        asyncio.run(listen(host, 0, Keys()))


@pytest.mark.parametrize("host", ["..", "a" * 64 + ".example"])
def test_a_host_that_is_no_name(host: str):
    with pytest.raises(InputError, match=r"host: '.*' must be a name or an address, and is neither"):
        asyncio.run(listen(host, 0, KEYS))


def test_with_keys_everybody():
    asyncio.run(listen("0.0.0.0", 0, KEYS))


def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: cannot be listened on: Address already in use"):
            asyncio.run(listen("127.0.0.1", port, Keys()))


def test_what_is_under_way_may_finish():
    with served(Toy(delay_s=0.05)) as site, site.client() as client:
        stream = client.completions.create(model="toy/counter", prompt="a", max_tokens=8, stream=True)
        first = next(stream)
        site.end()
        assert first.choices[0].text + "".join(chunk.choices[0].text for chunk in stream) == " 0 1 2 3 4 5 6 7"


def test_what_is_not_finished_in_time_ends_with_an_error(caplog: pytest.LogCaptureFixture):
    with served(Toy(holds_at=1), drain_s=1.0) as site, site.client() as client:
        stream = client.completions.create(model="toy/counter", prompt="a", stream=True)
        site.end()
        with pytest.raises(openai.APIError, match="the server ended before the answer did"):
            list(stream)
    assert site.engine.under_way == set()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_body_bytes": 0}, "max_body_bytes: 0 must be at least 1"),
        ({"max_held_bytes": 1}, "max_held_bytes: 1 must be at least 4194304"),
        ({"deadline_s": 0}, "deadline_s: 0 must be above 0"),
        ({"max_connections": 0}, "max_connections: 0 must be at least 1"),
        ({"max_connections_per_address": 5000}, "max_connections_per_address: 5000 must be 1 to 4096"),
        ({"head_s": 0}, "head_s: 0 must be above 0"),
    ],
)
def test_limits_have_limits(limits: dict[str, int], message: str):
    with pytest.raises(InputError, match=message):
        Limits(**limits)


def test_connections_leave_files_for_everything_else():
    assert Limits().within(1024).max_connections == 1024 - 128
    assert Limits().within(1024).connections_per_address == (1024 - 128) // 4
    assert Limits(max_connections_per_address=4096).within(1024).connections_per_address == 1024 - 128
    assert Limits().within(1 << 20) == Limits()
