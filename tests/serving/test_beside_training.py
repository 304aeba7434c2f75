"""A service and a training run on the same slots, as real processes: whatever happens to one, the other goes on."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.serving.contract import Broken, Busy
from geotrain.serving.service import Service
from geotrain.training.launch import Launch, Loopback, Run
from tests.serving import live
from tests.serving.commanded import serving, until
from tests.serving.prefilling import prompt as ids_of
from tests.training.data import VOCAB, dataset
from tests.training.launch.runs import alive
from tests.training.pausing import PROGRAM, pause
from tests.training.plans import MODEL, plan

DEADLINE_S = 150.0
# Training and serving start one after the other, each with several processes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def launch(decided: Plan, directory: Path, *options: str, **given: Any) -> Launch:
    """A run that announces its idle time."""
    directory.mkdir(exist_ok=True)
    file = directory / "plan.yaml"
    file.write_text(yaml.safe_dump(decided.dump()))
    announce = ("--announce", str(directory / "windows"))
    told: dict[str, Any] = {"insecure": True, "max_restarts": 0} | given
    return Launch(
        plan_file=file, seating=Seating(decided), out=directory / "run", options=(*options, *announce), **told
    )


def log(out: Path) -> list[dict[str, Any]]:
    """Of a run so far."""
    file = out / "log.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def losses(out: Path) -> dict[int, float]:
    """Of each step, as it was done last."""
    return {line["step"]: line["loss"] for line in log(out)}


def test_serve_is_killed_and_another_one_takes_over(tmp_path: Path):
    profile = {
        "stage": {"forward_s": 0.03, "backward_s": 0.06, "recompute_s": 0, "weight_grad_s": 0.03},
        "boundary_bytes": 10_000,
        "gradient_bytes": 0,
        "optimizer_s": 0,
    }
    decided = plan(["east", "south"], pipelines_per_cell=2, job={"profile": profile})
    started = launch(decided, tmp_path, "--compute", "emulated", "--steps", "100000")
    emulated = ["--compute", "emulated", "--slo", "20 s"]
    with Run(started, Loopback(started.seating)) as run:
        with serving(tmp_path, decided, *emulated) as first:
            answer = first.ask()
            until(lambda: len(log(started.out)) > 3)
            assert first.ask() == answer
            family = first.family()
            assert len(family) >= 5
            first.process.kill()
            until(lambda: not any(alive(pid) for pid in family))
        done = len(log(started.out))
        with serving(tmp_path, decided, *emulated) as second:
            assert second.ask() == answer
            assert second.end() == 0
        until(lambda: len(log(started.out)) > done + 3)
        assert all(alive(run.pid(seat.name)) for seat in started.seating.seats)


async def until_(true: Callable[[], object]) -> None:
    """Wait for something, but not for ever."""
    async with asyncio.timeout(DEADLINE_S):
        while not true():  # noqa: ASYNC110 -- there is no event: it happens elsewhere
            await asyncio.sleep(0.05)


class Load:
    """Clients that ask again and again; every answer is the same, or there is a reason why there is none."""

    def __init__(self, made: Service) -> None:
        self._made = made
        self.answers = 0
        self.refusals: list[str] = []

    async def run(self, number: int) -> None:
        """Until cancelled."""
        expected: list[int | None] | None = None
        count = 0
        while True:
            count += 1
            asked = live.prompt(ids_of(100), name=f"load-{number}-{count}", max_tokens=4)
            try:
                found = [piece.token for piece in await live.answer(self._made, asked)]
            except (Busy, Broken) as error:
                self.refusals.append(str(error))
            else:
                assert found == (expected or found)
                expected = found
                self.answers += 1
            await asyncio.sleep(0.1)

    async def goes_on(self) -> None:
        """Some more answers."""
        wanted = self.answers + 3
        await until_(lambda: self.answers >= wanted)


def test_training_comes_is_restarted_and_goes_and_learns_the_same(tmp_path: Path):
    data = dataset(tmp_path)
    decided = plan(
        ["east", "south"],
        schedule="1f1b",
        job={"model": MODEL | {"layers": 2, "vocab": VOCAB}, "microbatches": 4},
    )
    options = ("--steps", "12", "--checkpoint-every", "1", "--deadline", "90 s", "--peer-timeout", "90 s")
    alone = launch(decided, tmp_path / "alone", *options, data=data)
    with Run(alone, Loopback(alone.seating)) as run:
        run.wait(deadline_s=DEADLINE_S)
    started = launch(decided, tmp_path, *options, data=data, max_restarts=2, program=PROGRAM)
    paused = pause(started.out, 3)

    def told() -> list[dict[str, Any]]:
        """What the slots have said of training so far."""
        lines = map(json.loads, (tmp_path / "prefill.jsonl").read_text().splitlines())
        return [line for line in lines if line["what"] == "windows"]

    def trains() -> set[bool]:
        """What they have said last."""
        return set({line["slot"]: line["trains"] for line in told()}.values())

    async def story() -> None:
        async with live.running(tmp_path, decided=decided, times=None) as made, asyncio.TaskGroup() as group:
            load = Load(made)
            clients = [group.create_task(load.run(number)) for number in range(2)]
            await load.goes_on()
            assert trains() == {False}
            with Run(started, Loopback(started.seating)) as run:
                await until_(lambda: len(log(started.out)) == 3)
                await until_(lambda: trains() == {True})
                victim, before = run.pid("south-0"), len(told())
                assert victim is not None
                os.kill(victim, signal.SIGKILL)
                paused.unlink()
                await until_(lambda: not all(line["trains"] for line in told()[before:]))
                await load.goes_on()
                await asyncio.to_thread(run.wait, deadline_s=DEADLINE_S)
            await until_(lambda: trains() == {False})
            await load.goes_on()
            for client in clients:
                client.cancel()

    asyncio.run(story())
    assert "resuming after step" in (started.logs / "east-0.log").read_text()
    assert losses(started.out) == losses(alone.out)
