"""Data centers of one process each, told different things: what each of them says at its end."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from geotrain.errors import GeotrainError
from geotrain.plan import Plan
from geotrain.training.options import Options
from geotrain.training.report import StepReport
from tests.ports import free_port
from tests.training.forked import CONTEXT

_DEADLINE_S = 60.0

Ending = tuple[list[dict[str, Any]], str, int]
"""What the leading process reported, the error and its exit code."""


def train_alone(plan: Plan, told: Mapping[str, Options]) -> dict[str, Ending]:
    """By data center; those of a plan with one slot in each."""
    control = ("127.0.0.1", free_port())
    answers = {dc: CONTEXT.Queue() for dc in told}
    processes = [
        CONTEXT.Process(
            target=_train, args=(plan.dump(), replace(options, dc=dc, control=control), answers[dc]), daemon=True
        )
        for dc, options in told.items()
    ]
    try:
        for process in processes:
            process.start()
        return {dc: answer.get(timeout=_DEADLINE_S) for dc, answer in answers.items()}
    finally:
        for process in processes:
            process.kill()
            process.join()


class _Watch:
    last = None

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def report(self, report: StepReport) -> None:
        self.reports.append(asdict(report))

    def close(self) -> None:
        pass


def _train(content: Any, options: Options, answer: Any) -> None:
    import torch

    from geotrain.training.trainer import train

    torch.set_num_threads(1)
    watch, error, code = _Watch(), "", 0
    try:
        train(Plan.parse(content, source=Path("plan.yaml")), options, journal=lambda: watch)
    except GeotrainError as problem:
        error, code = str(problem), problem.exit_code
    answer.put((watch.reports, error, code))
    answer.close()
    answer.join_thread()
