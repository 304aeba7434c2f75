"""Saving while training goes on: the tensors are copied to host memory, a thread writes the copy."""

import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Thread

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.tensor import DTensor

from geotrain.errors import InputError, RunError
from geotrain.model import Config
from geotrain.training.checkpoint import torch_files
from geotrain.training.checkpoint.manifest import Manifest, Position
from geotrain.training.checkpoint.steps import StepId, prune, stage_path, sweep
from geotrain.training.checkpoint.writing import Writers, write


class Saver:
    """Writes the checkpoints of one stage; every rank that holds a part of its state has one.

    The ranks of the stage call the same methods in the same order and see the same directory. `group` is theirs, of
    gloo, and serves nothing else: the thread talks over it while training uses other groups.
    """

    def __init__(
        self,
        directory: Path,
        *,
        stage: int,
        num_stages: int,
        model: Config,
        attempt: str,
        keep: int = 3,
        group: ProcessGroup | None = None,
        deadline_s: float = 600.0,
    ) -> None:
        if keep < 1:
            raise InputError(f"keep: {keep} must be at least 1")
        self.saved: list[StepId] = []
        """Steps that this saver has written, oldest first."""
        self._directory, self._keep, self._deadline_s = directory, keep, deadline_s
        self._draft = Manifest(
            stage=stage, num_stages=num_stages, attempt=attempt, position=Position(step=0), model=model
        )
        self._writers = Writers(group)
        # Pinned and kept where there is a GPU; without one, memory cannot be pinned.
        self._stager = BlockingAsyncStager(cache_staged_state_dict=torch.cuda.is_available())
        self._thread: Thread | None = None
        self._problem: str | None = None
        self._token = self._writers.gather(uuid.uuid4().hex[:8])[0]
        if self._writers.leads:
            sweep(directory, stage)
        torch_files.quiet()

    def save(self, state: Mapping[str, Tensor], position: Position, *, complete: Collection[int] = ()) -> None:
        """Begin to write; when it returns, the tensors may change.

        Waits for the save before, and raises what `wait` raises. `complete` are the steps known to be whole in all
        data centers: of these, older ones go when this one is written, so that `keep` are left with it.
        """
        self.wait()
        # Torch does not copy a distributed scalar.
        plain = {name: t.to_local() if isinstance(t, DTensor) and not t.dim() else t for name, t in state.items()}
        staged = self._stager.stage({name: tensor.detach() for name, tensor in plain.items()})
        draft = self._draft.model_copy(update={"position": position})
        self._thread = Thread(target=self._work, args=(staged, draft, complete), name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def writing(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Until nothing is under way; RunError says, once, why the last save failed or that it takes too long.

        After a failed save training may go on and the next save may succeed. One that takes too long still has the
        group, so the process had better end.
        """
        if self._thread is not None:
            self._thread.join(self._deadline_s)
            if self._thread.is_alive():
                raise RunError(f"{self._directory}: a checkpoint is not written after {self._deadline_s:g} s")
        problem, self._thread, self._problem = self._problem, None, None
        if problem is not None:
            raise RunError(problem)

    def _work(self, state: Mapping[str, Tensor], draft: Manifest, complete: Collection[int]) -> None:
        step = draft.position.step
        target = stage_path(self._directory, step, draft.stage)
        try:
            write(state, draft, target, token=self._token, writers=self._writers)
            self.saved.append(StepId(step, draft.attempt))
            if self._writers.leads:
                prune(self._directory, complete=complete, keep=max(1, self._keep - 1))
        except Exception as error:
            self._problem = f"{target}: the checkpoint was not written: {torch_files.why(error)}"
