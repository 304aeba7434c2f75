"""Where checkpoints are: `step-00000010/stage-02` under one directory, a temporary name until a stage is complete.

Data centers may have a directory each, with their own stages in it.
"""

import re
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from geotrain.errors import InputError
from geotrain.training.checkpoint.manifest import FILE, DamagedError, Manifest

_STEP, _STAGE = re.compile(r"step-(\d{8,})"), re.compile(r"stage-(\d{2,})")


class StepId(NamedTuple):
    """A saved step; two attempts may have saved the same one, and their stages do not mix."""

    step: int
    attempt: str


@dataclass(kw_only=True)
class SavedStage:
    """A complete stage."""

    path: Path
    manifest: Manifest
    verified: bool = False
    """Whether the files have been read and found good."""


@dataclass(frozen=True, kw_only=True)
class SavedStep:
    """What is here of a step and an attempt."""

    path: Path
    id: StepId
    stages: list[SavedStage]
    problems: list[str]
    """Of stages that are left out."""

    @property
    def complete(self) -> bool:
        """Whether all stages are here."""
        return bool(self.stages) and {stage.manifest.stage for stage in self.stages} == set(
            range(self.stages[0].manifest.num_stages)
        )

    def holds(self, names: Iterable[str]) -> bool:
        """Whether these tensors are in the stages that are here."""
        return all(any(name in stage.manifest.tensors for stage in self.stages) for name in names)


def stage_path(directory: Path, step: int, stage: int) -> Path:
    """Where a complete stage is."""
    return directory / f"step-{step:08}" / f"stage-{stage:02}"


def temporary_path(target: Path, token: str) -> Path:
    """Where a stage is until it is complete."""
    return target.with_name(f"{target.name}.tmp-{token}")


def steps(directory: Path) -> list[SavedStep]:
    """The steps that are here, in whole or in part, oldest first."""
    return [step for number, path in _numbered(directory, _STEP) for step in _attempts(path, number)]


def prune(directory: Path, *, complete: Collection[int], keep: int) -> None:
    """Remove steps that newer ones have made useless; `complete` are those that all data centers have whole."""
    present = dict(_numbered(directory, _STEP))
    for step in doomed(present, complete=complete, keep=keep):
        shutil.rmtree(present[step], ignore_errors=True)


def doomed(present: Collection[int], *, complete: Collection[int], keep: int) -> set[int]:
    """Older than the newest complete step and not among the last `keep` complete ones."""
    kept = sorted(complete)[-keep:]
    return {step for step in present if kept and step < kept[-1] and step not in kept}


def sweep(directory: Path, stage: int) -> None:
    """Remove what writers of a stage that died have left; no writer of it may be alive."""
    for leftover in directory.glob(f"step-*/stage-{stage:02}.tmp-*"):
        remove_temporary(leftover)


def remove_temporary(path: Path) -> None:
    """And its step, if nothing else is in it."""
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.parent.rmdir()
    except OSError:
        return


def _numbered(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    try:
        found = [(pattern.fullmatch(path.name), path) for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{directory}: cannot be read: {error.strerror}") from None
    return sorted((int(match[1]), path) for match, path in found if match)


def _attempts(path: Path, number: int) -> list[SavedStep]:
    found: dict[str, list[SavedStage]] = {}
    problems = []
    for _, place in _numbered(path, _STAGE):
        try:
            stage = _stage(place)
        except DamagedError as error:
            problems.append(str(error))
        else:
            found.setdefault(stage.manifest.attempt, []).append(stage)
    if problems and not found:
        found[""] = []
    return [
        SavedStep(path=path, id=StepId(number, attempt), stages=found[attempt], problems=problems)
        for attempt in sorted(found)
    ]


def _stage(path: Path) -> SavedStage:
    manifest = Manifest.load(path / FILE)
    step, stage = manifest.position.step, manifest.stage
    if stage_path(path.parent.parent, step, stage) != path:
        raise DamagedError(f"{path}: holds stage {stage} of step {step}")
    return SavedStage(path=path, manifest=manifest)
