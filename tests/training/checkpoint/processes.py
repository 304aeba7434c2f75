"""Functions in processes of their own, forked from one that has torch loaded already."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.training.forked import CONTEXT


def in_process(work: Callable[..., Any], *args: Any) -> tuple[int | None, Any]:
    """Exit code of the process, and what the work gave or None if it did not end."""
    [result] = _run([(work, args)])
    return result


def in_world(work: Callable[..., Any], directory: Path, size: int, *args: Any) -> list[tuple[int | None, Any]]:
    """The same for each rank of a gloo world; the work gets its rank first."""
    meeting = directory / f"meeting-{work.__name__}"
    return _run([(_rank, (meeting, size, rank, work, args)) for rank in range(size)])


def _run(jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[tuple[int | None, Any]]:
    started = []
    for work, args in jobs:
        receiver, sender = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_tell, args=(sender, work, args), daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    results = []
    for process, receiver in started:
        process.join(40)
        if process.is_alive():
            process.kill()
            process.join()
        with receiver:
            try:
                answer = receiver.recv()
            except EOFError:
                answer = None
        results.append((process.exitcode, answer))
        process.close()
    return results


def _tell(sender: Any, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    sender.send(work(*args))


def _rank(meeting: Path, size: int, rank: int, work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=30)
    )
    try:
        return work(rank, *args)
    finally:
        dist.destroy_process_group()
