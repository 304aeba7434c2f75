"""`geotrain serve` as a process of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
import yaml

from geotrain.plan import Plan
from tests.serving import live
from tests.training.launch.runs import alive

DEADLINE_S = 100.0


def until(true: Callable[[], object]) -> None:
    """Wait for something, but not for ever."""
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


@dataclass
class Served:
    """One that takes requests."""

    process: subprocess.Popen[bytes]
    said: Path
    """What it wrote to stderr."""
    port: int

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=key, max_retries=0)

    def ask(self, words: str = "the sea", max_tokens: int = 4) -> str:
        """Greedily; again if it is told to come back later, for training may leave no bubble just now."""
        end_s = time.monotonic() + DEADLINE_S
        with self.client() as client:
            while True:
                try:
                    got = client.completions.create(model=live.NAME, prompt=words, max_tokens=max_tokens, temperature=0)
                except openai.RateLimitError:
                    assert time.monotonic() < end_s, "it was always told to come back later"
                    time.sleep(0.2)
                else:
                    return got.choices[0].text

    def family(self) -> set[int]:
        """Processes that it has started, and those that these have."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}

    def end(self) -> int:
        """Politely; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


@contextmanager
def serving(directory: Path, decided: Plan, *options: str) -> Iterator[Served]:
    """Takes requests inside the block, and leaves nobody behind."""
    model, plan, said = directory / live.NAME, directory / "plan.yaml", directory / "said"
    if not model.exists():
        live.model(model)
    plan.write_text(yaml.safe_dump(decided.dump()))
    command = [sys.executable, "-m", "geotrain", "serve", str(plan), "--port", "0", "--out", str(directory / "out")]
    command += ["--announce", str(directory / "windows")]
    if "--model" not in options:
        command += ["--model", str(model)]
    with said.open("wb") as file:
        process = subprocess.Popen([*command, *options], stderr=file, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: process.poll() is not None or "serving " in said.read_text())
        found = re.search(r"at http://127\.0\.0\.1:(\d+)/v1", said.read_text())
        assert found is not None, said.read_text()
        served = Served(process, said, int(found[1]))
        yield served
        family = served.family()
        if process.poll() is None:
            served.end()
        until(lambda: not any(alive(pid) for pid in family))
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
