"""The processes of a service: started, and started again when they end, until the service does."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

_LEAST_PAUSE_S = 0.5
_MOST_PAUSE_S = 30.0
_LASTING_S = 60.0
"""Who has lived for so long did not fail at once."""
_PATIENCE_S = 5.0
_NOT_STARTED = 1
_PRELOADED = "geotrain.serving.forking"


@dataclass
class _Member:
    make: Callable[[], BaseProcess]
    process: BaseProcess
    since_s: float
    pause_s: float = _LEAST_PAUSE_S


class Staff:
    """They are forked from one process that has loaded what they need. Belongs to an event loop."""

    def __init__(self, ended: Callable[[str, int], None]) -> None:
        """`ended` hears who ended, and how."""
        self._ended = ended
        self._members: dict[str, _Member] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        self._open = True
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([_PRELOADED])

    async def start(self, name: str, target: Callable[[Any], None], spec: object) -> None:
        """A process that runs `target(spec)`, now and whenever it has ended. The first one takes a while."""

        def make() -> BaseProcess:
            return self._context.Process(target=target, args=(spec,), name=name, daemon=True)

        self._members[name] = _Member(make, make(), time.monotonic())
        await self._begin(name)

    async def _begin(self, name: str) -> None:
        process = self._members[name].process
        await asyncio.to_thread(process.start)
        asyncio.get_running_loop().add_reader(process.sentinel, self._over, name)

    def pid(self, name: str) -> int | None:
        """Of the process that has the name now."""
        return self._members[name].process.pid

    def kill(self, name: str) -> None:
        """One that does not answer; another takes its place."""
        process = self._members[name].process
        if process.pid is not None:
            process.kill()

    async def close(self) -> None:
        """End all of them: those who listened to serve have heard that it is over, and clear up."""
        self._open = False
        for restart in self._restarts:
            restart.cancel()
        await asyncio.gather(*self._restarts, return_exceptions=True)
        processes = [member.process for member in self._members.values() if member.process.pid is not None]
        for process in processes:
            if process.is_alive():
                process.terminate()
        end_s = time.monotonic() + _PATIENCE_S
        for process in processes:
            await asyncio.to_thread(process.join, max(0.0, end_s - time.monotonic()))
            process.kill()
            process.join()

    def _over(self, name: str) -> None:
        member = self._members[name]
        asyncio.get_running_loop().remove_reader(member.process.sentinel)
        member.process.join()
        if not self._open:
            return
        self._ended(name, member.process.exitcode or 0)
        lasted = time.monotonic() - member.since_s > _LASTING_S
        member.pause_s = _LEAST_PAUSE_S if lasted else min(_MOST_PAUSE_S, 2 * member.pause_s)
        self._restarts.add(restart := asyncio.create_task(self._again(name)))
        restart.add_done_callback(self._restarts.discard)

    async def _again(self, name: str) -> None:
        member = self._members[name]
        while self._open:
            await asyncio.sleep(member.pause_s)
            member.process, member.since_s = member.make(), time.monotonic()
            try:
                await self._begin(name)
                return
            except Exception:
                # The machine may have no room for a process now, and some later.
                member.pause_s = min(_MOST_PAUSE_S, 2 * member.pause_s)
                self._ended(name, _NOT_STARTED)
