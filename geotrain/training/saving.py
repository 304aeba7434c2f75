"""When a run saves, from which step it goes on, and what it leaves at its end."""

import shutil
import sys
import uuid
from pathlib import Path
from typing import Any

import torch.distributed as dist

from geotrain.errors import InputError, RunError
from geotrain.model import Config
from geotrain.plan import Plan
from geotrain.seating import Seat, Seating
from geotrain.tokens.manifest import TOKENIZER
from geotrain.training import checkpoint
from geotrain.training.checkpoint import Position, Saver, StepId
from geotrain.training.control import Control
from geotrain.training.learner import Learner
from geotrain.training.options import Options


class Saving:
    """One process's part in checkpoints; all processes call the same methods in the same order."""

    def __init__(
        self, plan: Plan, options: Options, seating: Seating, seat: Seat, learner: Learner, data: str, control: Control
    ) -> None:
        self._plan, self._options, self._seat, self._learner, self._data = plan, options, seat, learner, data
        self._leads = seat == seating.seats[0]
        self._control = control
        self._directory = _directory(options)
        self._config = Config.of(plan.job.model, sequence=plan.job.sequence)
        self._saver = Saver(
            self._directory,
            stage=seat.stage,
            num_stages=len(plan.stages),
            model=self._config,
            attempt=control.gather(uuid.uuid4().hex[:12])[0],
            keep=options.keep,
            group=_group_of_stage(seating, seat),
            deadline_s=options.deadline_s,
        )
        self._complete: list[StepId] = []

    def resume(self) -> int:
        """Load the newest checkpoint that all processes have; the step to begin with."""
        check(self._plan, self._options, self._data)
        state = self._learner.state()
        found = {
            step.id: step
            for step in checkpoint.available(self._directory, state, model=self._config, report=self._warn)
        }

        def is_good(step: StepId) -> bool:
            return checkpoint.is_good(found[step], state, model=self._config, report=self._warn)

        self._complete = checkpoint.agree(found, is_good, self._control.gather)
        if not self._complete:
            return 0
        newest = self._complete[-1]
        checkpoint.load(found[newest], state, model=self._config)
        if self._leads:
            _say(f"resuming after step {newest.step} of {self._options.steps}")
        return newest.step

    def is_due(self, step: int) -> bool:
        """Whether something is saved after that step."""
        every, done = self._options.checkpoint_every, step + 1
        return done == self._options.steps or bool(every and done % every == 0)

    def after(self, step: int) -> None:
        """Save if it is time; training goes on while it is written and when that fails, not when it takes too long."""
        if self.is_due(step) and step + 1 < self._options.steps:
            self._save(step + 1)

    def _save(self, steps: int) -> None:
        try:
            self._saver.wait()
        except RunError as error:
            if self._saver.writing:
                raise
            self._warn(f"{error}; training goes on")
        shared = checkpoint.common(self._control.gather([*self._complete, *self._saver.saved]))
        position = Position(
            step=steps, samples=_samples(self._plan, steps), tokens=steps * self._plan.tokens_per_step, data=self._data
        )
        self._saver.save(self._learner.state(), position, complete=[step.step for step in shared])

    def finish(self) -> None:
        """Save the last step, and write the model where all of its stages are in reach."""
        if not self._complete or self._complete[-1].step < self._options.steps:
            self._save(self._options.steps)
        problem = ""
        try:
            self._saver.wait()
        except RunError as error:
            problem = str(error)
        problems: list[Any] = [words for words in self._control.gather(problem) if words]
        if problems:
            raise RunError(problems[0])
        if self._leads:
            self._export()

    def _export(self) -> None:
        here = [step for step in checkpoint.steps(self._directory) if step.id.step == self._options.steps]
        if not any(step.complete for step in here):
            _say(f"{self._directory}: has not all stages; `geotrain export` makes the model where they are together")
            return
        out = self._options.out / "model"
        checkpoint.export(self._directory, self._options.steps, out)
        assert self._options.data is not None
        shutil.copyfile(self._options.data / TOKENIZER, out / TOKENIZER)

    def _warn(self, words: str) -> None:
        if self._seat.part == 0:
            sys.stderr.write(f"warning: {self._seat.name}: {words}\n")


class NoSaving:
    """Emulated stages have nothing to keep."""

    def resume(self) -> int:
        """From the beginning."""
        return 0

    def is_due(self, step: int) -> bool:
        """Never."""
        return False

    def after(self, step: int) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


def check(plan: Plan, options: Options, data: str) -> None:
    """InputError if the run's directory has checkpoints that it cannot go on from; `data` says what it trains on."""
    directory = _directory(options)
    model = Config.of(plan.job.model, sequence=plan.job.sequence)
    found = checkpoint.available(directory, (), model=model, report=lambda words: None)
    if found and not options.resume:
        raise InputError(f"{directory}: has checkpoints already; resume, or give another directory")
    for position in (step.stages[0].manifest.position for step in reversed(found) if step.stages):
        if position.data != data:
            raise InputError(f"{directory}: step {position.step} was trained on other data or with another seed")
        samples = _samples(plan, position.step)
        if position.samples != samples:
            raise InputError(
                f"{directory}: step {position.step} has seen {position.samples} samples, and this plan would have "
                f"shown {samples}: the global batch must stay the same"
            )


def _directory(options: Options) -> Path:
    return options.out / "checkpoints"


def _samples(plan: Plan, steps: int) -> int:
    return steps * plan.tokens_per_step // plan.job.sequence


def _group_of_stage(seating: Seating, seat: Seat) -> dist.ProcessGroup | None:
    """All processes that hold a stage; a group of its own, for a thread talks over it. All ranks make all groups."""
    found = None
    for stage in dict.fromkeys(other.stage for other in seating.world(seat.dc)):
        ranks = [other.rank for other in seating.world(seat.dc) if other.stage == stage]
        if len(ranks) > 1:
            made = dist.new_group(ranks, backend="gloo")
            found = made if seat.stage == stage else found
    return found


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()
