"""The HTTP side of `geotrain serve` as its options set it up, without workers behind it."""

import asyncio
import os
import re
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest
import typer
import yaml

from geotrain.serving import service
from geotrain.transport.keys import make_keys
from geotrain.transport.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE
from tests.serving import live
from tests.serving.http.toy import MODEL, Toy

# Torch is imported.
pytestmark = pytest.mark.slow


@pytest.fixture
def visited(geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the command with these options, call `visit` with the URL once it serves, and end it."""
    monkeypatch.chdir(tmp_path)
    live.model(tmp_path / "model")
    Path("plan.yaml").write_text(yaml.safe_dump(live.small_plan().dump()))
    make_keys(tmp_path / "tls", job="job", nodes=["localhost"], days=2)
    urls: list[str] = []
    serving, echo = threading.Event(), typer.echo

    async def idle(deadline_s: float) -> None: ...

    @asynccontextmanager
    async def no_service(*parts: Any, say: Callable[[str], None], **more: Any) -> AsyncIterator[Any]:
        toy: Any = Toy()
        toy.drain = lambda: None
        yield SimpleNamespace(
            reception=toy,
            requests=SimpleNamespace(under_way=0, idle=idle),
            started=lambda: asyncio.sleep(0),
            failed=asyncio.get_running_loop().create_future(),
        )

    def heard(words: str, **more: Any) -> None:
        echo(words, **more)
        if found := re.search(r"at (https?://\S+)/v1", words):
            urls.append(found[1])
            serving.set()

    monkeypatch.setattr(service, "service", no_service)
    monkeypatch.setattr("typer.echo", heard)

    def run(*options: object, visit: Callable[[str], None]) -> None:
        failures: list[BaseException] = []

        def work() -> None:
            serving.wait()
            if not urls:
                return
            try:
                visit(urls[0])
            except BaseException as error:
                failures.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=work)
        thread.start()
        where = ("--model", "model", "--announce", "windows", "--out", "out", "--port", "0")
        Path("out").mkdir()
        answer = geotrain("serve", "plan.yaml", *where, *options)
        serving.set()
        thread.join()
        if failures:
            raise failures[0]
        assert answer.exit_code == 0, answer

    return run


def test_over_tls_with_the_limits_that_were_given(visited, caplog: pytest.LogCaptureFixture):
    mine = Path("tls/localhost")
    trusting = ssl.create_default_context(cafile=str(mine / CA_FILE))

    def visit(url: str) -> None:
        assert url.startswith("https://127.0.0.1:")
        port = int(url.rpartition(":")[2])
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusting, timeout=60) as client:
            body = {"model": MODEL, "prompt": "a", "max_tokens": 2}
            assert client.post("/v1/completions", json=body).json()["choices"][0]["text"] == " 0 1"
            silent, third = (socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(2))
            with silent, third:
                assert third.recv(1) == b""
            refused = 'geotrain:http_refusals_total{reason="too_many_connections_of_address"} 1.0'
            assert refused in client.get("/metrics").text

    tls = ("--tls-certificate", mine / CERTIFICATE_FILE, "--tls-key", mine / KEY_FILE)
    visited(*tls, "--max-connections", 6, "--max-connections-per-address", 2, visit=visit)
    assert "1 too_many_connections_of_address; the last from 127.0.0.1" in caplog.text


def test_prometheus_has_a_key_of_its_own(visited):
    Path("prometheus").write_text("sk-prometheus-0123\n")

    def visit(url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            assert client.get("/metrics").status_code == 401
            # As `credentials_file` of Prometheus' `authorization` has it: the whole file, without blanks around.
            key = Path("prometheus").read_text().strip()
            answer = client.get("/metrics", headers={"authorization": f"Bearer {key}"})
            assert answer.status_code == 200 and 'http_refusals_total{reason="invalid_api_key"} 1.0' in answer.text

    visited("--metrics-keys", "prometheus", visit=visit)
