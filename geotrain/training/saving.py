"""When a run saves, from which step it goes on, and what it leaves at its end."""

import hashlib
import os
import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from geotrain.errors import GeotrainError, InputError, RunError
from geotrain.files import read_text, write_text
from geotrain.model import Config
from geotrain.plan import Plan
from geotrain.seating import Seat, Seating
from geotrain.tokens.manifest import TOKENIZER
from geotrain.training import checkpoint
from geotrain.training.checkpoint import Position, Saver, StepId
from geotrain.training.control import Control
from geotrain.training.learner import Learner
from geotrain.training.options import Options

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0
"""Between two attempts to write the last checkpoint, or the model."""
_MARK = 8
"""Length of what tells launches apart, at the beginning of an attempt's name."""


class Saving:
    """One process's part in checkpoints; all processes call the same methods in the same order."""

    def __init__(
        self, plan: Plan, options: Options, seating: Seating, seat: Seat, learner: Learner, data: str, control: Control
    ) -> None:
        self._plan, self._options, self._seat, self._learner, self._data = plan, options, seat, learner, data
        self._leads = seat == seating.seats[0]
        self._control, self._seating = control, seating
        self._attempt = control.gather(_new_attempt())[0]
        self._directory = _directory(options)
        self._config = Config.of(plan.job.model, sequence=plan.job.sequence)
        self._saver = Saver(
            self._directory,
            stage=seat.stage,
            num_stages=len(plan.stages),
            model=self._config,
            attempt=self._attempt,
            keep=options.keep,
            group=_group_of_stage(seating, seat, options.deadline_s),
            deadline_s=options.deadline_s,
        )
        self._complete: list[StepId] = []

    def resume(self) -> int:
        """Load the newest checkpoint that all processes have; the step to begin with.

        InputError if there are checkpoints and none can be used.
        """
        check(self._plan, self._options, self._data)
        state = self._learner.state()
        present = checkpoint.steps(self._directory)
        lacking = {step.id.step: checkpoint.shortcoming(step, state) for step in present}
        damaged = {step.id.step for step in present if step.problems}
        found = {
            step.id: step
            for step in checkpoint.available(self._directory, state, model=self._config, report=self._warn)
        }

        def is_good(step: StepId) -> bool:
            def report(words: str) -> None:
                self._warn(words)
                lacking[step.step] = words
                damaged.add(step.step)

            return checkpoint.is_good(found[step], state, model=self._config, report=report)

        self._complete = checkpoint.agree(found, is_good, self._control.gather)
        if not self._complete:
            mine = all(step.id.attempt.startswith(self._attempt[:_MARK]) for step in present)
            self._begin_anew(lacking, may=mine and not damaged)
            return 0
        newest = self._complete[-1]
        checkpoint.load(found[newest], state, model=self._config)
        if self._leads:
            _say(f"resuming after step {newest.step} of {self._options.steps}")
        return newest.step

    def _begin_anew(self, lacking: dict[int, str], *, may: bool) -> None:
        """Refuse to lose checkpoints of which none can be used; those that this launch has not finished may go."""
        told = self._control.gather([list(lacking.items()), may])
        everywhere = {seat.name: dict(words) for seat, (words, _) in zip(self._seating.seats, told, strict=True)}
        present = sorted({step for words in everywhere.values() for step in words})
        if not present:
            return
        if all(allowed for _, allowed in told):
            if self._leads:
                _say("no checkpoint was finished before; training begins at step 0")
            return
        reasons = []
        for step in present:
            without = [name for name, words in everywhere.items() if step not in words]
            otherwise = f"{without[0]} does not have it" if without else "its stages are of different starts"
            reasons.append(
                f"step {step}: {next((words[step] for words in everywhere.values() if words.get(step)), otherwise)}"
            )
        self._control.flush()
        raise InputError(
            f"{self._directory}: has checkpoints, and none can be used: {'; '.join(reasons)}. "
            "Bring back what is missing, or move them away to begin at step 0"
        )

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
        self._write(steps, [step.step for step in shared])

    def _write(self, steps: int, complete: list[int]) -> None:
        position = Position(
            step=steps, samples=_samples(self._plan, steps), tokens=steps * self._plan.tokens_per_step, data=self._data
        )
        self._saver.save(self._learner.state(), position, complete=complete)

    def finish(self) -> None:
        """Save the last step, and write the model where all of its stages are in reach."""
        if not self._complete or self._complete[-1].step < self._options.steps:
            self._save(self._options.steps)
        self._insist(self._saver.wait, again=lambda: self._write(self._options.steps, []))
        self._insist(self._export if self._leads else lambda: None)

    def _insist(self, work: Callable[[], None], *, again: Callable[[], None] = lambda: None) -> None:
        """Do the work until no process fails in it: what was learned is in these files, and nothing comes after them.

        A process that has failed does `again` before it tries once more. RunError on all when the deadline is over.
        """
        end_s, pause_s = time.monotonic() + self._options.deadline_s, _FIRST_PAUSE_S
        while True:
            problem = ""
            try:
                work()
            except RunError as error:
                problem = str(error)
            over = bool(problem) and (self._saver.writing or time.monotonic() > end_s)
            told = self._control.gather([problem, over])
            problems = [words for words, _ in told if words]
            if not problems:
                return
            if any(given_up for _, given_up in told):
                raise RunError(f"{problems[0]}; make room and resume")
            if problem:
                left_s = max(0.0, end_s - time.monotonic())
                self._warn(f"{problem}; tried again for {left_s:.0f} s: make room")
            time.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            if problem:
                again()

    def _export(self) -> None:
        here = [step for step in checkpoint.steps(self._directory) if step.id.step == self._options.steps]
        if not any(step.complete for step in here):
            _say(f"{self._directory}: has not all stages; `geotrain export` makes the model where they are together")
            return
        out = self._options.out / "model"
        assert self._options.data is not None
        try:
            checkpoint.export(self._directory, self._options.steps, out)
            write_text(out / TOKENIZER, read_text(self._options.data / TOKENIZER))
        except GeotrainError as error:
            raise RunError(str(error)) from None

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


def _group_of_stage(seating: Seating, seat: Seat, deadline_s: float) -> dist.ProcessGroup | None:
    """All processes that hold a stage; a group of its own, for a thread talks over it. All ranks make all groups."""
    found = None
    for stage in dict.fromkeys(other.stage for other in seating.world(seat.dc)):
        ranks = [other.rank for other in seating.world(seat.dc) if other.stage == stage]
        if len(ranks) > 1:
            made = dist.new_group(ranks, timeout=timedelta(seconds=deadline_s), backend="gloo")
            found = made if seat.stage == stage else found
    return found


def _new_attempt() -> str:
    """A name for this start of the run; those of one launch begin alike."""
    launch = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    mark = uuid.uuid4().hex if launch == "none" else hashlib.sha256(launch.encode()).hexdigest()
    return mark[:_MARK] + uuid.uuid4().hex[:12]


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()
