"""Processes that read long requests, and those whose chat template is the model's; tenants take turns."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from geotrain.errors import RunError
from geotrain.serving import rendering
from geotrain.serving.http import reading
from geotrain.serving.http.prompts import Asked, Order, is_short, order_of
from geotrain.serving.http.reading import READY, FailedError, unpacked
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.http.turns import Turns
from geotrain.serving.model_card import ModelCard

NUMBER = 2
LIMIT_S = 5.0
"""Of a CPU, for one request."""
_GRACE_S = 0.5
"""To finish a request whose client has left: soon done costs less than another process."""
_START_S = 60.0
_LINE_BYTES = 1 << 20


class Readers:
    """Reads bodies inside its block; from outside, only short ones."""

    def __init__(self, cards: Sequence[ModelCard], *, limit_s: float = LIMIT_S) -> None:
        first = {"cards": [card.dump() for card in cards], "limit_s": limit_s}
        self._cards, self._turns, self._limit_s = cards, Turns(NUMBER), limit_s
        self._idle = [_Reader(json.dumps(first).encode() + b"\n") for _ in range(NUMBER)]
        self._all = tuple(self._idle)
        self._jobs: set[asyncio.Task[Order]] = set()
        self._is_open = True

    async def __aenter__(self) -> Self:
        return self

    async def start(self) -> None:
        """Start the processes now, so that none has to start when it is needed; RunError if they cannot start."""
        await asyncio.gather(*(reader.start() for reader in self._all))

    async def __aexit__(self, *error: object) -> None:
        """End them, and what they work on."""
        self._is_open = False
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        for reader in self._all:
            reader.end()

    async def read(self, body: bytes, kind: type[Asked], tenant: str) -> Order:
        """Read a body; Refusal if it is wrong, or takes too much time or memory. Cancelling ends the work, if need be.

        A short one is read at once, which takes less than asking a process.
        """
        if is_short(body, kind, self._cards):
            return order_of(body, kind, self._cards)
        await self._turns.enter(tenant)
        job = asyncio.create_task(self._job(body, kind, tenant))
        self._jobs.add(job)
        job.add_done_callback(self._done)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(_GRACE_S, job.cancel)
            raise

    def _done(self, job: asyncio.Task[Order]) -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            job.exception()  # whoever asked may have left

    async def _job(self, body: bytes, kind: type[Asked], tenant: str) -> Order:
        """On a place of the tenant's, which also has to wait if the process must be started again."""
        reader = self._idle.pop()
        try:
            if not reader.is_alive:
                await reader.start()
            try:
                return await reader.read(body, kind)
            except EOFError:
                gib = rendering.MEMORY_BYTES >> 30
                message = f"reading the request takes more than {self._limit_s:g} s of a CPU, or {gib} GiB of memory"
                raise Refusal(400, "invalid_value", message) from None
            finally:
                if self._is_open and not reader.is_alive:
                    await reader.start()
        finally:
            self._idle.append(reader)
            self._turns.leave(tenant)


class _Reader:
    """One process, and the socket to it."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_alive(self) -> bool:
        return self._streams is not None and self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start it anew."""
        self.end()
        mine, its = socket.socketpair()
        with its:
            self._process = _spawned(its)
        self._streams = await asyncio.open_unix_connection(sock=mine, limit=_LINE_BYTES)
        try:
            async with asyncio.timeout(_START_S):
                self._streams[1].write(self._first)
                if await self._streams[0].readline() == READY:
                    return
        except (OSError, TimeoutError):
            pass
        except BaseException:
            self.end()
            raise
        self.end()
        raise RunError("a process that reads requests cannot start")

    async def read(self, body: bytes, kind: type[Asked]) -> Order:
        """Ask it; EOFError if it ends meanwhile. Whatever fails, or cancels this, ends the process."""
        try:
            if self._streams is None:
                raise EOFError
            answers, requests = self._streams
            requests.write(json.dumps({"kind": kind.__name__, "size": len(body)}).encode() + b"\n")
            requests.write(body)
            await requests.drain()
            said = json.loads(await answers.readuntil(b"\n"))
            tokens = await answers.readexactly(said.get("size", 0))
        except ConnectionError:
            self.end()
            raise EOFError from None
        except BaseException:
            self.end()
            raise
        if said["used_up"]:
            self.end()
        if "refusal" in said:
            status, code, message, param = said["refusal"]
            raise Refusal(status, code, message, param=param)
        if "failed" in said:
            raise FailedError(said["failed"])
        return unpacked(said["order"], tokens)

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._process = None


def _spawned(its: socket.socket) -> "subprocess.Popen[bytes]":
    """Return as soon as it runs, which takes a few milliseconds."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", reading.__name__],
        stdin=its.fileno(),
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false"},
    )
