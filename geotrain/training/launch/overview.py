"""What would run where, to be looked at before anything is started. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from geotrain.training.launch.process import Process
from geotrain.training.launch.scripts import seat_words, shell


def overview_json(planned: Sequence[Process]) -> list[dict[str, Any]]:
    """A row for each process that is started."""
    return [
        {
            "name": process.name,
            "dc": process.dc,
            "node": process.node,
            "host": process.host or None,
            "environment": dict(process.environment),
            "command": process.command,
            "seats": [{"name": seat.name, **asdict(seat)} for seat in process.seats],
        }
        for process in planned
    ]


def overview_lines(planned: Sequence[Process]) -> Iterator[str]:
    """Node by node, seat by seat, then the commands."""
    for (dc, node, host), group in groupby(planned, key=lambda process: (process.dc, process.node, process.host)):
        here = list(group)
        yield f"{dc}, node {node}{f' ({host})' if host else ''}"
        yield from (f"  {seat_words(seat)}" for process in here for seat in process.seats)
        for process in here:
            told = [f"{name}={value}" for name, value in process.environment.items()]
            yield f"  $ {' '.join([*shell(told), *shell(process.command)])}"
        yield ""
