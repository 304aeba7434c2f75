"""Every schedule, cut and sharing: how far losses and final weights are from those of one plain process.

Each trains 20 steps in fp32, a process for every slot, with real transfers over loopback. Temporal sharing is left out
where nothing can be pooled: with one stage or one pipeline.

    python -m benchmarks.matrix                all; about half an hour on one core
    python -m benchmarks.matrix atlas auto     only these schedules
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import torch

from benchmarks.measurement import Measurement
from geotrain.plan import ScheduleName, Sharing
from tests.training.data import dataset
from tests.training.reference import train_plainly
from tests.training.team import Team, team
from tests.training.test_same_losses import RECIPE, STEPS, Learned, made, trained

SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
STAGES, PIPELINES = range(1, 5), range(1, 4)
TOLERANCE = 1e-5


def run(schedules: Sequence[ScheduleName] = SCHEDULES) -> Iterator[Measurement]:
    """A line for each combination, then the largest differences."""
    worst: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as directory, team(STAGES[-1] * PIPELINES[-1]) as workers:
        matrix = _Matrix(workers, Path(directory))
        for schedule in schedules:
            for stages in STAGES:
                for pipelines in PIPELINES:
                    for name, differences in matrix.differences(schedule, stages, pipelines):
                        for what, value in differences.items():
                            worst[what] = max(worst.get(what, (-1.0, "")), (value, name))
    for what, (value, name) in worst.items():
        target = None if what.startswith("pooled") else TOLERANCE
        yield Measurement(name=f"{what}: largest difference ({name})", value=value, unit="", target=target)


class _Matrix:
    def __init__(self, workers: Team, directory: Path) -> None:
        self._workers, self._out, self._data = workers, directory / "run", dataset(directory)
        self._plain: dict[object, Learned] = {}

    def differences(
        self, schedule: ScheduleName, stages: int, pipelines: int
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """Of each sharing: from one plain process, and of pooled from unpooled."""
        ways: list[Learned] = []
        sharings: tuple[Sharing, ...] = get_args(Sharing) if stages > 1 and pipelines > 1 else ("spatial",)
        for sharing in sharings:
            plan = made(stages, pipelines, schedule, tied=pipelines == 2, wan={"sharing": sharing})
            batch = plan.job.model, pipelines
            if batch not in self._plain:
                self._plain[batch] = train_plainly(plan, self._data, steps=STEPS, recipe=RECIPE, seed=0)
            start_s = time.monotonic()
            ways.append(trained(self._workers, plan, self._data, self._out, sharded=pipelines == 3))
            took_s = time.monotonic() - start_s
            found = _difference("", ways[-1], self._plain[batch])
            found |= _difference("pooled and unpooled, ", *ways) if len(ways) > 1 else {}
            name = f"{schedule}, {stages} x {pipelines}, {sharing}"
            print(f"{name:<32} {', '.join(f'{what} {value:.1e}' for what, value in found.items())}", end="")
            print(f"  ({took_s:.1f} s)", flush=True)
            yield name, found


def _difference(words: str, one: Learned, other: Learned) -> dict[str, float]:
    assert len(one[0]) == len(other[0]) == STEPS and one[1].keys() == other[1].keys()
    losses = max(abs(a - b) for a, b in zip(one[0], other[0], strict=True))
    weights = max(float((tensor - other[1][name]).abs().max()) for name, tensor in one[1].items())
    return {f"{words}losses": losses, f"{words}weights": weights}


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(SCHEDULES):
        sys.exit(f"no such schedule: {', '.join(sorted(unknown))}; known: {', '.join(SCHEDULES)}")
    torch.set_num_threads(1)
    chosen = [schedule for schedule in SCHEDULES if schedule in sys.argv[1:]] or SCHEDULES
    for figure in run(chosen):
        print(f"{figure.name:75} {figure.value:.2g} {'' if figure.met else 'MISSED'}", flush=True)
