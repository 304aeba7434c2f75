"""How long `geotrain serve` waits for what, and how it ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from geotrain.cli import serve
from geotrain.errors import RunError
from geotrain.serving.engine import LiveEngine
from geotrain.serving.http import server
from geotrain.serving.requests import Requests
from geotrain.serving.service import Terms
from tests.serving import live

# A service has half a dozen processes, and each of them torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan and a model."""
    monkeypatch.chdir(tmp_path)
    live.model(tmp_path / "model")
    Path("plan.yaml").write_text(yaml.safe_dump(live.small_plan().dump()))
    return tmp_path


def test_a_service_that_no_longer_looks_after_its_requests_ends(geotrain, files: Path, monkeypatch: pytest.MonkeyPatch):
    async def tick(engine: LiveEngine) -> None:
        while engine.ready() is not None:  # noqa: ASYNC110 -- there is no event
            await asyncio.sleep(0.05)
        raise RunError("what is overdue cannot be given up")

    monkeypatch.setattr(LiveEngine, "tick", tick)
    answer = geotrain("serve", "plan.yaml", "--model", "model", "--announce", "windows", "--port", "0")
    assert answer.exit_code == 1, answer
    assert answer.err.endswith("error: what is overdue cannot be given up\n"), answer.err


@pytest.mark.parametrize(("slo", "lease_s"), [("2 s", 60.0), ("300 s", 315.0)])
def test_nobody_gives_up_keys_and_values_that_may_still_come(
    geotrain, files: Path, monkeypatch: pytest.MonkeyPatch, slo: str, lease_s: float
):
    told: list[Terms] = []
    monkeypatch.setattr(serve, "_serve", lambda site, card, terms, *rest: told.append(terms))
    answer = geotrain("serve", "plan.yaml", "--model", "model", "--announce", "windows", "--slo", slo)
    assert answer.exit_code == 0, answer
    assert [terms.lease_s for terms in told] == [lease_s]


def test_the_time_to_finish_is_given_once(geotrain, files: Path, monkeypatch: pytest.MonkeyPatch):
    left: list[float] = []
    real = server.listening

    @asynccontextmanager
    async def listening(*app: Any, left_s: Callable[[], float], **where: Any) -> AsyncIterator[int]:
        async with real(*app, left_s=left_s, **where) as port:
            yield port
            left.append(left_s())

    async def tick(engine: LiveEngine) -> None:
        while engine.ready() is not None:  # noqa: ASYNC110 -- there is no event
            await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def idle(requests: Requests, deadline_s: float) -> None:
        assert deadline_s == 200.0
        await asyncio.sleep(1.0)

    monkeypatch.setattr(server, "listening", listening)
    monkeypatch.setattr(LiveEngine, "tick", tick)
    monkeypatch.setattr(Requests, "idle", idle)
    asked = ("serve", "plan.yaml", "--model", "model", "--announce", "windows", "--port", "0", "--drain", "200 s")
    assert geotrain(*asked).exit_code == 0
    # The loop's clock counts in milliseconds.
    assert 0.0 < left[0] <= 199.1
