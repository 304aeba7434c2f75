"""Which step all processes of a run resume from. Pure: the exchange among them is the caller's."""

from collections.abc import Callable, Iterable
from typing import Any

from geotrain.training.checkpoint.steps import StepId


def common(lists: Iterable[Iterable[tuple[int, str]]]) -> list[StepId]:
    """The steps that are in every list, oldest first."""
    sets = [{StepId(*step) for step in one} for one in lists]
    return sorted(set.intersection(*sets)) if sets else []


def agree(
    mine: Iterable[StepId], is_good: Callable[[StepId], bool], exchange: Callable[[Any], list[Any]]
) -> list[StepId]:
    """The common steps up to the newest that is good everywhere, the one to resume from; none to begin anew.

    Every process calls it with the steps that it has. `exchange` gives what each of them has put in, and all get the
    same; what goes through it is plain enough for JSON.
    """
    left = list(mine)
    while shared := common(exchange(left)):
        if all(exchange(is_good(shared[-1]))):
            return shared
        left = [step for step in left if step != shared[-1]]
    return []
