"""A signal that goes to all processes of a service ends it no sooner than one that goes to serve alone."""

import os
import signal
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.serving import live
from tests.serving.commanded import DEADLINE_S, serving, until
from tests.training.launch.runs import alive

# A service has half a dozen processes, and each of them torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def signal_all(pids: set[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_has_begun_is_finished_when_the_whole_group_is_told_to_end(tmp_path: Path, number: int):
    asked: Any = {"model": live.NAME, "prompt": "sea", "max_tokens": 1500, "temperature": 0}
    options = "--slo", "60 s", "--drain", "100 s"
    with serving(tmp_path, live.small_plan(), *options) as served, served.client() as client:
        whole = client.completions.create(**asked).choices[0]
        family = served.family()
        assert {os.getpgid(pid) for pid in family} == {served.process.pid}
        stream = client.completions.create(stream=True, **asked)
        first = next(stream)
        signal_all(family, signal.SIGSTOP)  # Else the answer may be finished already, however long it is.
        os.killpg(served.process.pid, number)
        until(lambda: "ending: 1 requests under way" in served.said.read_text())
        with pytest.raises(openai.InternalServerError) as refused:
            client.completions.create(**asked)
        assert refused.value.status_code == 503
        signal_all(family, signal.SIGCONT)
        choices = [chunk.choices[0] for chunk in (first, *stream)]
        assert ("".join(choice.text for choice in choices), choices[-1].finish_reason) == (whole.text, "length")
        assert served.process.wait(DEADLINE_S) == 0
        until(lambda: not any(alive(pid) for pid in family))
    assert "warning" not in served.said.read_text()
