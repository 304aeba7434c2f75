"""From a checkpoint into the tensors of a run, which may be laid out in another way."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from geotrain.errors import InputError
from geotrain.model import Config
from geotrain.training.checkpoint import torch_files
from geotrain.training.checkpoint.manifest import DamagedError, Position
from geotrain.training.checkpoint.steps import SavedStage, SavedStep, steps
from geotrain.training.checkpoint.writing import fingerprint

_FREE = {"max_position_embeddings", "initializer_range", "bos_token_id", "eos_token_id"}
"""What may be another in a resumed run: the weights mean the same."""


def load(step: SavedStep, state: Mapping[str, Tensor], *, model: Config) -> Position:
    """Fill the tensors in place from whichever stages have them; nothing is touched before all is checked."""
    check(step, state, model=model)
    with torch.no_grad():
        for stage, names in _homes(step, state):
            torch_files.load({name: state[name] for name in names}, stage.path, stage.manifest.files)
    return step.stages[0].manifest.position


def available(
    directory: Path, names: Iterable[str], *, model: Config, report: Callable[[str], None]
) -> list[SavedStep]:
    """Steps whose stages here have the tensors, oldest first; `report` hears of stages that cannot be read.

    InputError if there is a checkpoint of another model.
    """
    found, wanted = steps(directory), list(names)
    for step in found:
        for problem in step.problems:
            report(problem)
        _check_model(step, model)
    return [step for step in found if step.holds(wanted)]


def shortcoming(step: SavedStep, names: Iterable[str]) -> str:
    """Why what is here of a step does not have the tensors; empty if it does."""
    if step.holds(names):
        return ""
    if step.problems:
        return step.problems[0]
    here = ", ".join(str(stage.manifest.stage) for stage in step.stages)
    return f"{step.path}: has only stage {here} of {step.stages[0].manifest.num_stages}"


def is_good(step: SavedStep, state: Mapping[str, Tensor], *, model: Config, report: Callable[[str], None]) -> bool:
    """Whether `load` can load it; if it is damaged, `report` hears where."""
    try:
        check(step, state, model=model)
    except DamagedError as error:
        report(str(error))
        return False
    return True


def check(step: SavedStep, state: Mapping[str, Tensor], *, model: Config) -> None:
    """InputError if it is a checkpoint of another model, DamagedError if something is missing or damaged.

    Files are read once: a stage found good is not read again.
    """
    _check_model(step, model)
    if missing := [name for name in state if not step.holds([name])]:
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        raise DamagedError(step.problems[0] if step.problems else f"{step.path}: has no {missing[0]!r}{more}")
    for stage, names in _homes(step, state):
        for name in names:
            there, here = stage.manifest.tensors[name].shape, tuple(state[name].shape)
            if there != here:
                raise InputError(f"{stage.path}: {name!r} has the shape {list(there)} there and {list(here)} here")
        _verify(stage)


def _check_model(step: SavedStep, model: Config) -> None:
    for stage in step.stages:
        there, here = (config.model_dump(exclude=_FREE) for config in (stage.manifest.model, model))
        if other := [field for field in here if there[field] != here[field]]:
            more = f" (and {len(other) - 1} more)" if other[1:] else ""
            raise InputError(
                f"{stage.path}: is a checkpoint of another model: "
                f"{other[0]} is {there[other[0]]} there and {here[other[0]]} here{more}"
            )


def _homes(step: SavedStep, names: Iterable[str]) -> list[tuple[SavedStage, list[str]]]:
    """The stages to read and what from each: a tensor that several have is the first one's."""
    left = list(names)
    homes = []
    for stage in step.stages:
        here = [name for name in left if name in stage.manifest.tensors]
        left = [name for name in left if name not in stage.manifest.tensors]
        if here:
            homes.append((stage, here))
    return homes


def _verify(stage: SavedStage) -> None:
    if stage.verified:
        return
    for name, written in stage.manifest.files.items():
        path = stage.path / name
        try:
            found = fingerprint(path)
        except OSError as error:
            raise DamagedError(f"{path}: cannot be read: {error.strerror}") from None
        if found.size_bytes != written.size_bytes:
            raise DamagedError(f"{path}: is damaged: {found.size_bytes} bytes instead of {written.size_bytes}")
        if found != written:
            raise DamagedError(f"{path}: is damaged: its checksum is another")
    stage.verified = True
