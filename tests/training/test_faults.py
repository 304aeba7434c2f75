"""What a run survives: a killed process, a cut WAN, a full disk. It learns what it would have learned anyway."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.training.launch import Launch, Loopback, Namespaces, Run, needed_testbed
from geotrain.training.optimizer import Recipe
from tests.testbed.machine import require_namespaces
from tests.training.data import VOCAB, dataset
from tests.training.pausing import PROGRAM, pause
from tests.training.plans import MODEL, plan
from tests.training.reference import train_plainly

STEPS = 24
DEADLINE_S = 150.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(350)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of this package's own sources."""
    return dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def decided() -> Plan:
    """Two data centers, two pipelines that pool; steps slow enough to be disturbed."""
    job = {"model": MODEL | {"layers": 2, "vocab": VOCAB}, "microbatches": 4}
    return plan(["east", "south"], pipelines_per_cell=2, schedule="1f1b", job=job)


@pytest.fixture(scope="module")
def expected(decided: Plan, data: Path) -> list[float]:
    """The losses of a run to which nothing happens."""
    return train_plainly(decided, data, steps=STEPS, recipe=Recipe(), seed=0)[0]


def launch(decided: Plan, data: Path, directory: Path, *, restarts: int, options: tuple[str, ...] = ()) -> Launch:
    """A run with a checkpoint after every step."""
    file = directory / "plan.yaml"
    file.write_text(yaml.safe_dump(decided.dump()))
    told = ("--steps", str(STEPS), "--checkpoint-every", "1", "--deadline", "60 s", *options)
    return Launch(
        plan_file=file,
        seating=Seating(decided),
        out=directory / "run",
        data=data,
        insecure=True,
        max_restarts=restarts,
        options=told,
        program=PROGRAM,
    )


def told(out: Path) -> list[dict[str, Any]]:
    """What a run has said of each step."""
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def losses(out: Path) -> list[float]:
    """Of each step, as it was done last."""
    steps = {line["step"]: line["loss"] for line in told(out)}
    return [steps[step] for step in sorted(steps)]


def steps_done(out: Path) -> int:
    """How far a run is."""
    log = out / "log.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def until(true: Callable[[], object]) -> None:
    """Wait for something, but not for ever."""
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


def test_a_killed_process_costs_no_more_than_the_step_it_was_in(
    decided: Plan, data: Path, expected: list[float], tmp_path: Path
):
    started = launch(decided, data, tmp_path, restarts=2)
    paused = pause(started.out, 5)
    with Run(started, Loopback(started.seating)) as run:
        until(lambda: steps_done(started.out) == 5)
        victim = run.pid("south-1")
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        paused.unlink()
        run.wait(deadline_s=DEADLINE_S)
    assert "resuming after step" in (started.logs / "east-0.log").read_text()
    assert losses(started.out) == pytest.approx(expected, abs=1e-5)


def test_a_wan_cut_of_ten_seconds_is_waited_out(decided: Plan, data: Path, expected: list[float], tmp_path: Path):
    require_namespaces()
    started = launch(decided, data, tmp_path, restarts=0)
    with needed_testbed(started.seating) as bed, Run(started, Namespaces(started.seating, bed)) as run:
        until(lambda: steps_done(started.out) >= 5)
        bed.cut("east", "south")
        done = steps_done(started.out)
        assert done < STEPS - 1, "the cut came when the run was as good as over"
        time.sleep(10.0)
        assert steps_done(started.out) <= done + 1
        bed.heal("east", "south")
        run.wait(deadline_s=DEADLINE_S)
    # It stood still once, in the step that was cut or before the next one, where data centers agree on what they tell.
    lines = told(started.out)
    assert [later["step"] for line, later in pairwise(lines) if later["time"] - line["time"] > 9.0] in (
        [done],
        [done + 1],
    )
    assert losses(started.out) == pytest.approx(expected, abs=1e-5)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A disk of that size, mounted there."""
    directory.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_training_goes_on_while_the_disk_is_full(decided: Plan, data: Path, expected: list[float], tmp_path: Path):
    started = launch(decided, data, tmp_path, restarts=0)
    before, after = pause(started.out, 3), pause(started.out, 9)
    with small_disk(started.out / "checkpoints", "8m") as disk, Run(started, Loopback(started.seating)) as run:
        until(lambda: steps_done(started.out) == 3)
        with (disk / "ballast").open("wb") as ballast, pytest.raises(OSError, match="No space left"):
            while True:
                ballast.write(b"\0" * 65536)
                ballast.flush()
        before.unlink()
        until(lambda: steps_done(started.out) == 9 and _said(started, "the checkpoint was not written"))
        (disk / "ballast").unlink()
        after.unlink()
        run.wait(deadline_s=DEADLINE_S)
        assert (disk / f"step-{STEPS:08}").is_dir()
    assert losses(started.out) == pytest.approx(expected, abs=1e-5)


def _said(started: Launch, words: str) -> bool:
    return any(words in log.read_text() for log in started.logs.glob("*.log"))
