"""Reading the plan a command names, and naming that file in whatever goes wrong with it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from geotrain.plan import Plan

PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file; `geotrain init DIR` writes one.")]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Use this one instead of the plan's: gpipe, 1f1b, interleaved, varuna, zero-bubble, zero-bubble-2p, atlas "
        "or auto, which searches.",
    ),
]


@contextmanager
def opened(path: Path) -> Iterator[Plan]:
    """The plan; an InputError about it begins with the file's name."""
    from geotrain.errors import InputError
    from geotrain.plan import Plan

    plan = Plan.load(path)
    try:
        yield plan
    except InputError as error:
        raise type(error)(f"{path}: {error}") from error
