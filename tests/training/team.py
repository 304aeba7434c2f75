"""Processes that stay up and run one training after the other: starting torch takes longer than a small run."""

import json
import multiprocessing
import os
import queue
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from geotrain.plan import Plan
from geotrain.seating import Seating
from geotrain.training.options import Options
from geotrain.training.report import StepReport
from tests.ports import free_port
from tests.training.forked import CONTEXT

_DEADLINE_S = 110.0


class Team:
    """As many processes as the largest plan needs."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._start()

    def _start(self) -> None:
        self._orders = [CONTEXT.Queue() for _ in range(self._size)]
        self._answers: Any = CONTEXT.Queue()
        self._processes = [
            CONTEXT.Process(target=_work, args=(number, orders, self._answers), daemon=True)
            for number, orders in enumerate(self._orders)
        ]
        for process in self._processes:
            process.start()

    def train(self, plan: Plan, options: Options) -> list[dict[str, Any]]:
        """What the leading process reports of each step; every process's final weights are in `options.out`."""
        try:
            return self._train(plan, options)
        except BaseException:
            # Those that wait for one that has failed would be late for the next training.
            self.close()
            self._start()
            raise

    def _train(self, plan: Plan, options: Options) -> list[dict[str, Any]]:
        seating = Seating(plan)
        ports = {dc: free_port() for dc in seating.dcs}
        options = replace(options, control=("127.0.0.1", free_port()))
        for number, seat in enumerate(seating.seats):
            environment = {
                "RANK": str(seat.rank),
                "WORLD_SIZE": str(len(seating.world(seat.dc))),
                "LOCAL_RANK": str(seat.local_rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(ports[seat.dc]),
            }
            self._orders[number].put((plan.dump(), replace(options, dc=seat.dc), environment))
        reports: list[dict[str, Any]] = []
        end_s = time.monotonic() + _DEADLINE_S
        for _ in seating.seats:
            try:
                number, report, error = self._answers.get(timeout=max(0.0, end_s - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"a process has not ended within {_DEADLINE_S:g} s") from None
            assert not error, f"process {number}: {error}"
            reports = report or reports
        return reports

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.join()


@contextmanager
def team(size: int) -> Iterator[Team]:
    """A team; ended with the block."""
    made = Team(size)
    try:
        yield made
    finally:
        made.close()


class _Watch:
    last = None

    def __init__(self, reports: list[dict[str, Any]]) -> None:
        self._reports = reports

    def report(self, report: StepReport) -> None:
        self._reports.append(asdict(report))

    def close(self) -> None:
        pass


def _end_with_parent() -> None:
    """Without this, processes of a killed pytest would wait for orders for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(number: int, orders: Any, answers: Any) -> None:
    import torch

    from geotrain.training.trainer import train

    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        content, options, environment = orders.get()
        os.environ.update(environment)
        reports: list[dict[str, Any]] = []
        error = ""
        try:
            plan = Plan.parse(content, source=Path("plan.yaml"))
            train(plan, options, journal=partial(_Watch, reports))
        except Exception:
            error = traceback.format_exc()
        answers.put((number, json.loads(json.dumps(reports)), error))
