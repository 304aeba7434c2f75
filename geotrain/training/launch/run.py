"""Processes under way: started together, watched, ended together. None of them outlives this process."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from geotrain.errors import InputError, RunError
from geotrain.training.launch import entry
from geotrain.training.launch.ground import Ground
from geotrain.training.launch.launch import Launch
from geotrain.training.launch.logs import Tail, last_part, last_process
from geotrain.training.launch.process import SHUTDOWN_S, Process, processes
from geotrain.training.lock import Lock

PATIENCE_S = SHUTDOWN_S + 5.0
"""Between the polite signal and the other one."""
LAST_S = 600.0
"""How long others may take when one has ended well: all leave together, and agents wait up to 300 s for each other."""
_LOOK_S = 0.1
_LINES = 20
_WORKER_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
"""What torchrun says of the worker that failed first."""


class ProcessFailedError(RunError):
    """A process has ended, and not well; its exit code is the error's."""

    def __init__(self, name: str, code: int, log: Path, process: int | None = None) -> None:
        self.exit_code = code if code > 0 else 128 - code
        self.lines = last_part(log, process).splitlines()[-_LINES:]
        how = f"with exit code {code}" if code > 0 else f"by signal {-code} ({signal.strsignal(-code)})"
        last = self.lines[-1].removeprefix("error: ") if self.lines else "it has said nothing"
        super().__init__(f"{name} ended {how}: {last} (log: {log})")


class _Child:
    """A process that was started; of an agent, also which of its workers has failed."""

    def __init__(self, process: Process, logs: Path, popen: Callable[..., subprocess.Popen[Any]]) -> None:
        self.process, self._logs = process, logs
        self._tail = Tail(logs / f"{process.name}.log")
        self._worker: tuple[str, int, int] | None = None
        before = [sys.executable, "-I", "-S", entry.__file__]
        command = [*before, str(os.getpid()), str(self._tail.path)]
        if process.agent:
            command += [*process.agent, *before, "0", str(logs / f"{process.dc}-{{rank}}.log")]
        self.popen = popen(
            process.dc,
            process.node,
            [*command, *process.worker],
            env={**os.environ, **process.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def failure(self) -> ProcessFailedError | None:
        """What has gone wrong for good: the process has failed, or a worker that another start would not help."""
        code = self.popen.poll()
        if self.process.agent:
            for found in _WORKER_FAILED.finditer(self._tail.read()):
                self._worker = self.process.seats[int(found[2])].name, int(found[1]), int(found[3])
            if self._worker is not None and (self._worker[1] == InputError.exit_code or (code or 0) > 0):
                return self._failed(*self._worker)
        return self._failed(self.process.name, code) if code else None

    def _failed(self, name: str, code: int, process: int | None = None) -> ProcessFailedError:
        return ProcessFailedError(name, code, self._logs / f"{name}.log", process)


class Run:
    """`with Run(launch, ground) as run: run.wait()`: all are started on entry, and ended on exit.

    Raises InputError or RunError for what cannot be started.
    """

    def __init__(self, launch: Launch, ground: Ground) -> None:
        self._launch, self._ground = launch, ground
        self._children: list[_Child] = []
        self._lock: Lock | None = None
        self._leader = Tail(launch.logs / f"{launch.seating.dcs[0]}-0.log")

    def __enter__(self) -> Self:
        planned = list(processes(self._launch, self._ground))
        self._lock = self._launch.prepare()
        try:
            for process in planned:
                self._children.append(_Child(process, self._launch.logs, self._ground.popen))
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def wait(self, *, deadline_s: float = math.inf, tell: Callable[[str], None] = lambda text: None) -> None:
        """Until all have ended well; ProcessFailedError if one has not, RunError if the time is up or one stays behind.

        `tell` gets what the first process of the leading data center says.
        """
        end_s, first_s = time.monotonic() + deadline_s, math.inf
        while True:
            running = [child.process.name for child in self._children if child.popen.poll() is None]
            if len(running) < len(self._children):
                first_s = min(first_s, time.monotonic())
            tell(self._leader.read())
            if failures := [failure for child in self._children if (failure := child.failure()) is not None]:
                # Of several, the one that is no consequence: killed before refused before failed, as their codes go.
                raise max(failures, key=lambda failure: failure.exit_code)
            if not running:
                return
            if time.monotonic() > first_s + LAST_S:
                behind = f"{running[0]} still runs {LAST_S:g} s after another process has ended well"
                raise RunError(f"{behind}; the log is {self._launch.logs / running[0]}.log")
            if time.monotonic() > end_s:
                said = last_part(self._leader.path).splitlines() or ["nothing"]
                raise RunError(f"the run was not done within {deadline_s:g} s; {self._leader.path} ends: {said[-1]}")
            time.sleep(_LOOK_S)

    def pid(self, name: str) -> int | None:
        """The process that has a seat, such as east-0, at this moment; None before it has started."""
        return last_process(self._launch.logs / f"{name}.log")

    def end(self) -> None:
        """End what still runs, politely at first; at once if this is interrupted."""
        left = [child.popen for child in self._children]
        try:
            for popen in left:
                popen.terminate()
            until_s = time.monotonic() + PATIENCE_S
            for popen in left:
                with suppress(subprocess.TimeoutExpired):
                    popen.wait(max(0.0, until_s - time.monotonic()))
        finally:
            for popen in left:
                popen.kill()
                popen.wait()
            if self._lock is not None:
                self._lock.release()
                self._lock = None
