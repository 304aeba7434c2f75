"""Where a model's files are, for commands that take a model or a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geotrain.training.checkpoint import SavedStep


def model_directory(model: Path) -> Path:
    """Of the model itself."""
    from geotrain.errors import InputError

    found = next((place for place in (model, model / "model") if (place / "config.json").exists()), None)
    if found is None:
        raise InputError(f"{model}: is no model: it has neither config.json nor model/config.json")
    return found


def served_directory(model: Path, tokenizer: Path | None, scratch: Path) -> Path:
    """A model with a tokenizer: as it is, or put together in `scratch` from a run's newest checkpoint.

    InputError says what is missing.
    """
    from geotrain.errors import InputError
    from geotrain.files import read_text, write_text

    if (model / "checkpoints").is_dir() and not (model / "model" / "config.json").exists():
        from geotrain.training.checkpoint import export

        export(model / "checkpoints", chosen_step(model / "checkpoints", "latest").id.step, scratch)
        model = scratch
    directory = model_directory(model)
    if tokenizer is not None and directory != scratch:
        for file in directory.iterdir():
            if file.name != "tokenizer.json":
                (scratch / file.name).symlink_to(file.resolve())
        directory = scratch
    if tokenizer is not None:
        path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        write_text(scratch / "tokenizer.json", read_text(path))
    if not (directory / "tokenizer.json").exists():
        raise InputError(f"{directory}: has no tokenizer.json; --tokenizer names one, or the data set that has it")
    return directory


def chosen_step(directory: Path, step: str) -> SavedStep:
    """The step asked for; InputError says what is missing."""
    from geotrain.errors import InputError
    from geotrain.training.checkpoint import steps

    if step != "latest" and not step.isdecimal():
        raise InputError(f"--step is {step!r} and must be a number or latest")
    found = steps(directory)
    if not found:
        raise InputError(f"{directory}: has no checkpoints")
    wanted = found if step == "latest" else [one for one in found if one.id.step == int(step)]
    if not wanted:
        numbers = ", ".join(str(number) for number in dict.fromkeys(one.id.step for one in found))
        raise InputError(f"--step is {step} and must be one of those in {directory}: {numbers}")
    complete = [one for one in wanted if one.complete]
    if not complete:
        raise InputError(_lack(wanted[-1]))
    return complete[-1]


def _lack(step: SavedStep) -> str:
    if step.problems:
        return step.problems[0]
    have = {stage.manifest.stage for stage in step.stages}
    missing = [stage for stage in range(step.stages[0].manifest.num_stages) if stage not in have]
    named = f"stage {missing[0]} is" if len(missing) == 1 else f"stages {', '.join(map(str, missing))} are"
    return f"{step.path}: {named} missing; bring the checkpoints of all data centers together"
