"""Plays a slot's script: the simulator's actions in the simulator's order, each as soon as what it needs has arrived.

Knows neither torch nor sockets nor what computes: that is `Compute`, `Post` and whoever listens to idling.
"""

import time
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from geotrain.action import Action, Kind
from geotrain.training.idling import Idling, Nobody
from geotrain.training.script import Cue

Parcel = TypeVar("Parcel")


class Compute(Protocol[Parcel]):
    """One device with the stages of a slot. Stages are counted through all chunks of the model."""

    def forward(self, stage: int, microbatch: int, given: Parcel | None, *, keep: bool) -> Parcel | None:
        """F; the first stage is given nothing, the last gives nothing. Keep: what backward needs, no R will come."""

    def recompute(self, stage: int, microbatch: int) -> None:
        """R."""

    def backward(self, stage: int, microbatch: int, given: Parcel | None) -> Parcel | None:
        """B."""

    def backward_input(self, stage: int, microbatch: int, given: Parcel | None) -> Parcel | None:
        """I."""

    def backward_weight(self, stage: int, microbatch: int) -> None:
        """W."""

    def settle(self) -> None:
        """Wait until the device has done what it was told, as far as that is needed to know when it was done."""


class Post(Protocol[Parcel]):
    """Parcels to and from the neighbours; `stage` is the one that sends."""

    def send(self, step: int, backward: bool, stage: int, microbatch: int, parcel: Parcel) -> None:
        """Never waits."""

    def has(self, step: int, backward: bool, stage: int, microbatch: int) -> bool:
        """Whether `receive` need not wait."""

    def notice(self, step: int, backward: bool, stage: int, microbatch: int, *, wait: bool = True) -> float | None:
        """Since when it has been arriving; waits for that if it has not begun. None: it is there, or nobody knows."""

    def receive(self, step: int, backward: bool, stage: int, microbatch: int) -> Parcel:
        """Waits, with a deadline."""


class Log(Protocol):
    """Who keeps the spans."""

    def action(self, kind: Kind, stage: int, microbatch: int, start_s: float, end_s: float) -> None:
        """An action is done."""


class Executor(Generic[Parcel]):
    """One slot, step after step."""

    def __init__(
        self,
        cues: Sequence[Cue],
        *,
        num_model_stages: int,
        compute: Compute[Parcel],
        post: Post[Parcel],
        log: Log,
        idling: Idling | None = None,
    ) -> None:
        self._last = num_model_stages - 1
        self._compute, self._post, self._log = compute, post, log
        self._idling = idling or Idling(cues, step_time_s=0.0, listener=Nobody())
        redone = {(cue.action.stage, cue.action.microbatch) for cue in cues if cue.action.kind is Kind.R}
        self._play: list[tuple[Action, bool]] = [
            (cue.action, (cue.action.stage, cue.action.microbatch) not in redone) for cue in cues
        ]

    def step(self, step: int) -> float:
        """Play the script once; the seconds in which the slot computed."""
        idling = self._idling
        idling.begin(step, time.monotonic())
        busy_s = 0.0
        for mark, (action, keep) in enumerate(self._play):
            given = None
            need = self._need(action)
            if need is not None:
                if not self._post.has(step, *need):
                    coming_s = self._post.notice(step, *need, wait=False)
                    idling.wait(mark, coming_s)
                    if coming_s is None and (coming_s := self._post.notice(step, *need)) is not None:
                        idling.foresee(mark, coming_s)
                given = self._post.receive(step, *need)
            start_s = time.monotonic()
            idling.reach(mark, start_s)
            made = self._do(action, given, keep)
            end_s = time.monotonic()
            if made is not None:
                self._post.send(step, action.kind is not Kind.F, action.stage, action.microbatch, made)
            self._log.action(action.kind, action.stage, action.microbatch, start_s, end_s)
            busy_s += end_s - start_s
        return busy_s

    def _need(self, action: Action) -> tuple[bool, int, int] | None:
        """The parcel without which the action cannot begin: direction, sender, microbatch."""
        stage = action.stage
        if action.kind is Kind.F and stage > 0:
            return False, stage - 1, action.microbatch
        if action.kind in (Kind.B, Kind.I) and stage < self._last:
            return True, stage + 1, action.microbatch
        return None

    def _do(self, action: Action, given: Parcel | None, keep: bool) -> Parcel | None:
        compute, where = self._compute, (action.stage, action.microbatch)
        made = None
        match action.kind:
            case Kind.F:
                made = compute.forward(*where, given, keep=keep)
            case Kind.R:
                compute.recompute(*where)
            case Kind.B:
                made = compute.backward(*where, given)
            case Kind.I:
                made = compute.backward_input(*where, given)
            case Kind.W:
                compute.backward_weight(*where)
        compute.settle()
        return made
