"""Launches of the stand-in for `geotrain train`."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geotrain.seating import Seating
from geotrain.training.launch import Launch
from tests.training.plans import plan

WORKER = str(Path(__file__).with_name("worker.py"))


def launch(
    out: Path, do: str, *, who: str | None = None, stages: Sequence[str] = ("east", "south"), **given: Any
) -> Launch:
    """Of a plan with one pipeline and one GPU per node."""
    options = ("--do", do, *(() if who is None else ("--who", who)))
    told: dict[str, Any] = {"insecure": True, "max_restarts": 0, "program": (sys.executable, WORKER)} | given
    return Launch(plan_file=Path("plan.yaml"), seating=Seating(plan(stages)), out=out, options=options, **told)


def until(true: Callable[[], object], deadline_s: float = 110.0) -> None:
    """Wait for something to become true."""
    end_s = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


def alive(pid: int | None) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    assert pid is not None
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def python(script: str) -> list[str]:
    """A command that runs a script with the tests' modules at hand."""
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {os.getcwd()!r})\n{script}"]
