"""What is run, and what each of its processes is told."""

import importlib.util
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from geotrain.errors import InputError, RunError
from geotrain.seating import Seating
from geotrain.training.lock import Lock

JOB = "training"
"""Of the keys that are made here."""
KEY_DAYS = 90
_LOCK = "launch.lock"
_OWN = ("--resume", "--out", "--data", "--control", "--insecure", "--dry-run", "--json")
"""Options that `launch` has too, and that mean more there."""


def train_options(
    dc: str, *, plan: str, data: str | None, out: str, control: str | None, host: str, keys: str | None
) -> list[str]:
    """Of `geotrain train`; no keys is --insecure."""
    return [
        plan,
        *("--dc", dc),
        *(() if data is None else ("--data", data)),
        *("--out", out),
        *(() if control is None else ("--control", control)),
        *("--host", host),
        *(("--insecure",) if keys is None else ("--keys", keys)),
    ]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One run of a plan."""

    plan_file: Path
    seating: Seating
    out: Path
    data: Path | None = None
    """As the processes see it."""
    insecure: bool = False
    max_restarts: int = 3
    """How often torchrun starts the processes of a data center again; 0: no torchrun, and none is started again."""
    options: tuple[str, ...] = ()
    """Further ones of `geotrain train`."""
    resume: bool = True
    """Whether the run may go on in a directory that has been used."""
    run_id: str = field(default_factory=lambda: secrets.token_hex(16))
    """Tells this launch from all others."""
    program: tuple[str, ...] = (sys.executable, "-m", "geotrain", "train")

    def __post_init__(self) -> None:
        if self.max_restarts < 0:
            raise InputError(f"--max-restarts is {self.max_restarts} and must be at least 0")
        if misplaced := next((word for word in self.options if word.split("=", 1)[0] in _OWN), None):
            raise InputError(f"{misplaced} stands after --, where options of `geotrain train` are: put it before --")

    @property
    def is_emulated(self) -> bool:
        """Whether the processes are told to emulate compute."""
        words = [word for option in self.options for word in option.split("=", 1)]
        return ["--compute", "emulated"] in [list(two) for two in pairwise(words)]

    @property
    def keys(self) -> Path:
        """A directory for each process."""
        return self.out / "keys"

    @property
    def logs(self) -> Path:
        """A file for each process, and for each agent."""
        return self.out / "logs"

    @property
    def saved_step(self) -> int | None:
        """The newest step of which all stages are saved; None if there is none."""
        slots = {f"stage-{number:02}" for number in range(len(self.seating.plan.stages))}
        steps = [
            int(path.name.removeprefix("step-"))
            for path in (self.out / "checkpoints").glob("step-*")
            if path.name.removeprefix("step-").isdecimal() and slots <= {stage.name for stage in path.iterdir()}
        ]
        return max(steps, default=None)

    def store(self, dc: str) -> Path:
        """Where the processes of a data center meet: a directory of files, for its owner alone."""
        return self.out / "rendezvous" / dc

    def worker(self, dc: str, *, host: str, control: str) -> tuple[str, ...]:
        """The command of a process on this machine."""
        options = train_options(
            dc,
            plan=str(self.plan_file),
            data=None if self.data is None else str(self.data),
            out=str(self.out),
            control=control,
            host=host,
            keys=None if self.insecure else str(self.keys),
        )
        return *self.program, *options, *self.options

    def check(self) -> None:
        """Let one process look first, before any is started: InputError with what all would refuse. Writes nothing."""
        self._check_packages()
        if not self.insecure:
            from geotrain.transport.keys import check_keys

            check_keys(self.keys, job=JOB, nodes=[seat.name for seat in self.seating.seats])
        words = self.worker(self.seating.dcs[0], host="127.0.0.1", control="127.0.0.1:29400")
        done = subprocess.run(
            [*words, "--dry-run"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            last = (done.stderr.splitlines() or ["a process has said nothing"])[-1].removeprefix("error: ")
            raise InputError(last) if done.returncode == InputError.exit_code else RunError(last)

    def prepare(self) -> Lock:
        """Make what the processes need: directories and keys. The run's directory is locked until it is released."""
        self._check_packages()
        lock = self.lock()
        try:
            self._make()
        except BaseException:
            lock.release()
            raise
        return lock

    def _check_packages(self) -> None:
        if importlib.util.find_spec("torch") is None:
            raise InputError("training needs torch: pip install 'geotrain[train]'")
        if not self.insecure and importlib.util.find_spec("cryptography") is None:
            raise InputError("keys need the package cryptography: pip install 'geotrain[train]'")

    def lock(self) -> Lock:
        """Lock the run's directory; InputError if another launch has it, or had it and this one is not to resume."""
        check_out(self.out, resume=self.resume)
        lock = Lock(self.out / _LOCK)
        try:
            # Again: another launch may have come, and ended, since.
            check_out(self.out, resume=self.resume)
        except BaseException:
            lock.release()
            raise
        return lock

    def _make(self) -> None:
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.out / "rendezvous", ignore_errors=True)
            (self.out / "rendezvous").mkdir(mode=0o700)
            for dc in self.seating.dcs:
                self.store(dc).mkdir(mode=0o700)
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be made: {error.strerror}") from None
        if self.insecure:
            return
        from geotrain.transport.keys import make_keys

        make_keys(self.keys, job=JOB, nodes=[seat.name for seat in self.seating.seats], days=KEY_DAYS)


def check_out(out: Path, *, resume: bool) -> None:
    """Refuse a directory that has been used, unless the run is to go on there."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file, expected a directory for the run")
    if not resume and out.is_dir() and any(path.name != _LOCK for path in out.iterdir()):
        raise InputError(f"{out}: is not empty; --resume goes on with the run in it, or name another directory")
