"""Who ends is started again, also where that does not work at once."""

import asyncio
import time
from multiprocessing.process import BaseProcess

import pytest

from geotrain.serving.staff import Staff
from tests.serving.test_faults import until

pytestmark = pytest.mark.slow


def test_a_process_that_cannot_be_started_now_is_started_later(monkeypatch: pytest.MonkeyPatch):
    ended: list[tuple[str, int]] = []
    start, refusals = BaseProcess.start, [BlockingIOError(11, "no room for a process"), EOFError()]

    def sometimes(process: BaseProcess) -> None:
        if refusals:
            raise refusals.pop()
        start(process)

    async def story() -> None:
        staff = Staff(lambda name, code: ended.append((name, code)))
        await staff.start("sleeper", time.sleep, 60.0)
        staff._members["sleeper"].pause_s = 0.01
        monkeypatch.setattr(BaseProcess, "start", sometimes)
        first = staff.pid("sleeper")
        staff.kill("sleeper")
        await until(lambda: staff.pid("sleeper") not in (None, first))
        await staff.close()

    asyncio.run(story())
    assert ended == [("sleeper", -9), ("sleeper", 1), ("sleeper", 1)]
