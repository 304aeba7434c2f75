"""A live service: what it does to training and makes of the bubbles, and what it does under a crowd of clients.

`live` is `geotrain demo live`, longer: emulated GPUs train over the testbed's WAN, requests come in blocks, and steps
with and without load are compared within one run, then with the simulation. `load` is a service without training whose
slots are emulated GPUs, and 1,000 streaming clients that want more than it has.

    python -m benchmarks.serving              both; about seven minutes on two quiet cores
    python -m benchmarks.serving load         one of: live, load
"""

import asyncio
import json
import random
import re
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measurement import Measurement
from geotrain.demo.live import played
from geotrain.demo.process import started
from geotrain.demo.scene import LIKE, NAME, PLAN, made_model

LIVE_S = 250
CLIENTS, LOAD_S = 1000, 120.0
ANSWER_TOKENS = 48
ADMISSION_S = 0.02
POINTS = 5.0
_HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def run() -> Iterator[Measurement]:
    """Both."""
    yield from live()
    yield from load()


def live() -> Iterator[Measurement]:
    """Beside training."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        found = played(Path(scratch), LIVE_S, lambda words: None)
    measured, simulated = found.measured, found.simulated
    slower, margin = measured.slowdown
    yield Measurement(name="serve: GPUs busy, training alone", value=100 * measured.before, unit="%")
    yield Measurement(name="serve: GPUs busy, with prefill", value=100 * measured.after, unit="%")
    off = abs(100 * (measured.after - simulated.after))
    yield Measurement(name="serve: distance from the simulation", value=off, unit="points", target=POINTS)
    yield Measurement(name="serve: training slower by", value=100 * slower, unit="%", target=1.0)
    yield Measurement(name="serve: margin of that, 95%", value=100 * margin, unit="%")
    yield Measurement(name="serve: overruns per step", value=measured.overruns / len(measured.lengths_s), unit="")
    yield Measurement(name="serve: TTFT p50, measured", value=measured.ttft(0.5), unit="s")
    yield Measurement(name="serve: TTFT p50, simulated", value=simulated.ttft(0.5), unit="s")


class Crowd:
    """Clients that ask, read to the end, and ask again; who is told 429 comes back when told to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.statuses: Counter[str] = Counter()
        self.streams = self.most_streams = self.tokens = 0

    async def come(self, seconds: float) -> None:
        """All of them, for that long, and until their last answer."""
        end_s = time.monotonic() + seconds
        async with asyncio.timeout(seconds + 60):
            await asyncio.gather(*(self._client(number, end_s) for number in range(CLIENTS)))

    async def _client(self, number: int, end_s: float) -> None:
        chance = random.Random(number)
        await asyncio.sleep(5 * chance.random())
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while time.monotonic() < end_s:
            body = _body(chance)
            writer.write(_HEAD % len(body) + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = answer.split()[1]
            self.statuses[status] += 1
            if status == "200":
                await self._read(reader)
                continue
            await reader.readexactly(int(_field(answer, "content-length")))
            await asyncio.sleep(min(float(_field(answer, "retry-after")), max(0.0, end_s - time.monotonic())))
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        self.streams += 1
        self.most_streams = max(self.streams, self.most_streams)
        while size := int(await reader.readline(), 16):
            content = await reader.readexactly(size + 2)
            self.tokens += content.count(b"data: {")
            self.statuses["error in a stream"] += b'"error"' in content
        await reader.readexactly(2)
        self.streams -= 1


def _body(chance: random.Random) -> bytes:
    length = max(1, min(1900, int(chance.lognormvariate(6.2, 0.9))))
    words = "".join(chance.choices("abcdefgh ", k=length))
    return json.dumps({"model": NAME, "prompt": words, "max_tokens": ANSWER_TOKENS, "stream": True}).encode()


def _field(answer: str, name: str) -> str:
    found = re.search(rf"{name}: ([\d.]+)", answer)
    assert found is not None, answer
    return found[1]


def load() -> Iterator[Measurement]:
    """More clients than there is room for."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        scratch = Path(directory)
        made_model(scratch / NAME)
        command = ["serve", PLAN, "--model", scratch / NAME, "--announce", scratch / "announce", "--port", 0]
        command += ["--compute", "emulated", "--like", LIKE, "--out", scratch / "out"]
        with started(scratch / "serve.log", command) as serving:
            port = int(serving.until(scratch / "serve.log", r"at http://127.0.0.1:(\d+)", 300.0))
            crowd = Crowd(port)
            pages = asyncio.run(_watched(crowd, serving.pid))
            metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    errors = sum(number for status, number in crowd.statuses.items() if status not in ("200", "429"))
    yield Measurement(name="load: answered", value=crowd.statuses["200"], unit="")
    yield Measurement(name="load: told 429", value=crowd.statuses["429"], unit="")
    yield Measurement(name="load: other ends", value=errors, unit="", target=0)
    yield Measurement(name="load: most streams at once", value=crowd.most_streams, unit="")
    yield Measurement(name="load: tokens per second", value=crowd.tokens / LOAD_S, unit="/s")
    yield Measurement(name="load: admission p50", value=1e3 * _quantile(metrics, 0.5), unit="ms")
    yield Measurement(
        name="load: admission p99", value=1e3 * _quantile(metrics, 0.99), unit="ms", target=1e3 * ADMISSION_S
    )
    growth = max(pages[len(pages) // 2 :]) / max(pages[: len(pages) // 2])
    yield Measurement(name="load: memory, second half over the first", value=growth, unit="x", target=1.1)


def _pages(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


async def _watched(crowd: Crowd, pid: int) -> list[int]:
    """Memory of the process, second by second, in pages."""
    coming, pages = asyncio.create_task(crowd.come(LOAD_S)), []
    while not coming.done():
        pages.append(_pages(pid))
        await asyncio.wait({coming}, timeout=1.0)
    await coming
    return pages


def _quantile(metrics: str, q: float) -> float:
    """Of the histogram of admission times: the upper edge of the bucket."""
    rows = re.findall(r'geotrain:admission_seconds_bucket\{le="([^"]+)",[^}]*\} ([\d.]+)', metrics)
    edges, counts = zip(*((float(edge), float(count)) for edge, count in rows), strict=True)
    return float(edges[int(np.searchsorted(counts, q * counts[-1]))])


if __name__ == "__main__":
    for part in sys.argv[1:] or ["live", "load"]:
        for row in {"live": live, "load": load}[part]():
            missed = "" if row.met else "  MISSED"
            print(f"{row.name:<56} {row.value:8.4g} {row.unit:<8}{missed}", flush=True)
