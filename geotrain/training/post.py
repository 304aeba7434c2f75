"""How parcels, which are activations and gradients, get from slot to slot while the slot computes.

Sending never waits for the far side. What arrives is put into a mailbox by threads, so that it is there when the
executor asks. What carries parcels is in `lines.py`.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist

from geotrain.errors import RunError


class Key(NamedTuple):
    """Which parcel: the activation (or gradient, backward) that leaves a stage of the model."""

    step: int
    backward: bool
    stage: int
    microbatch: int

    def __str__(self) -> str:
        what = "gradient" if self.backward else "activation"
        return f"the {what} of microbatch {self.microbatch} from stage {self.stage} in step {self.step}"


class ParcelForm(NamedTuple):
    """What all parcels look like."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> torch.Tensor:
        """A place for one."""
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    @property
    def size_bytes(self) -> int:
        """Of each."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def read(self, data: memoryview) -> torch.Tensor:
        """One that came as bytes; RunError if the size is wrong."""
        if data.nbytes != self.size_bytes:
            raise RunError(
                f"a parcel of {data.nbytes} bytes came, and the plan's have {self.size_bytes}: not the same model"
            )
        return torch.frombuffer(data, dtype=self.dtype).view(self.shape).to(self.device, non_blocking=True)


class Mailbox:
    """What has arrived and was not asked for yet; any thread."""

    def __init__(
        self, on_arrival: Callable[[Key, float], None] = lambda key, at_s: None, *, foresees: bool = False
    ) -> None:
        """`foresees`: somebody wants to know what begins to arrive."""
        self.foresees = foresees
        self._parcels: dict[Key, tuple[torch.Tensor, Callable[[], object] | None]] = {}
        self._coming_s: dict[Key, float] = {}
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._on_arrival = on_arrival

    def put(self, key: Key, parcel: torch.Tensor, *, landed: Callable[[], object] | None = None) -> None:
        """A parcel has come; or its way into GPU memory is known, and `landed` makes the current stream wait for it."""
        self._on_arrival(key, time.monotonic())
        with self._changed:
            if key in self._parcels:
                self._error = RunError(f"{key} came twice")
            self._parcels[key] = parcel, landed
            self._coming_s.pop(key, None)
            self._changed.notify_all()

    def coming(self, key: Key) -> None:
        """A parcel has begun to arrive."""
        with self._changed:
            self._coming_s[key] = time.monotonic()
            self._changed.notify_all()

    def notice(self, key: Key, *, deadline_s: float) -> float | None:
        """Wait until it is coming, and since when it is; None if it is not, or nobody wants to know."""
        if not self.foresees:
            return None
        with self._changed:
            self._changed.wait_for(lambda: self.has(key) or key in self._coming_s, deadline_s)
            return self._coming_s.get(key)

    def fail(self, error: Exception) -> None:
        """Nothing more will come by one of the ways."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def has(self, key: Key) -> bool:
        """Whether it is there, or never will be."""
        return key in self._parcels or self._error is not None

    def take(self, key: Key, *, deadline_s: float) -> torch.Tensor:
        """Wait for a parcel and take it out."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.has(key), deadline_s):
                raise RunError(f"{key} did not come within {deadline_s:g} s")
            if key not in self._parcels:
                assert self._error is not None
                raise self._error
            parcel, landed = self._parcels.pop(key)
        if landed is not None:
            landed()
        return parcel


class Line(Protocol):
    """The way to one other slot and back."""

    def begin(self, step: int) -> None:
        """A step begins: parcels of it may come."""

    def send(self, key: Key, parcel: torch.Tensor) -> None:
        """Take a parcel along; it must not be changed from now on."""

    def finish(self, *, deadline_s: float) -> None:
        """Wait until the far side has what was sent."""

    def close(self) -> None:
        """End."""


class Routes:
    """A slot's post office: which line leads where."""

    def __init__(
        self,
        *,
        slot: int,
        num_stages: int,
        lines: Mapping[int, Line],
        mailbox: Mailbox,
        deadline_s: float,
        on_send: Callable[[Key, float], None] = lambda key, at_s: None,
        shared: "Shared | None" = None,
    ) -> None:
        self._slot, self._num_stages, self._lines, self._mailbox = slot, num_stages, lines, mailbox
        self._deadline_s, self._on_send, self._shared = deadline_s, on_send, shared

    def begin(self, step: int) -> None:
        """A step begins."""
        for line in self._lines.values():
            line.begin(step)

    def send(self, step: int, backward: bool, stage: int, microbatch: int, parcel: torch.Tensor) -> None:
        """To the neighbour that needs it."""
        key = Key(step, backward, stage, microbatch)
        target = (stage - 1 if backward else stage + 1) % self._num_stages
        if target == self._slot:
            self._mailbox.put(key, parcel)
        elif target in self._lines:
            self._on_send(key, time.monotonic())
            self._lines[target].send(key, parcel)

    def has(self, step: int, backward: bool, stage: int, microbatch: int) -> bool:
        """Whether it is there."""
        return self._mailbox.has(Key(step, backward, stage, microbatch))

    def notice(self, step: int, backward: bool, stage: int, microbatch: int, *, wait: bool = True) -> float | None:
        """Since when it has been arriving; waits for that if it has not begun."""
        if self._shared is not None:
            return None
        deadline_s = self._deadline_s if wait else 0.0
        return self._mailbox.notice(Key(step, backward, stage, microbatch), deadline_s=deadline_s)

    def receive(self, step: int, backward: bool, stage: int, microbatch: int) -> torch.Tensor:
        """Wait for it."""
        key = Key(step, backward, stage, microbatch)
        if self._shared is not None and self._shared.comes_to_first(stage % self._num_stages):
            return self._shared.receive(lambda: self._mailbox.take(key, deadline_s=self._deadline_s))
        return self._mailbox.take(key, deadline_s=self._deadline_s)

    def finish(self) -> None:
        """Wait until all neighbours have what was sent."""
        for line in self._lines.values():
            line.finish(deadline_s=self._deadline_s)

    def close(self) -> None:
        """End."""
        for line in self._lines.values():
            line.close()


class Shared:
    """A slot of several GPUs: over the WAN a parcel goes once, to the first of them, and from there to the others."""

    def __init__(self, group: dist.ProcessGroup, part: int, form: ParcelForm, over_wan: Collection[int]) -> None:
        self._group, self._part, self._form, self._over_wan = group, part, form, over_wan

    def comes_to_first(self, source: int) -> bool:
        """Whether parcels of that slot come to the first GPU only."""
        return source in self._over_wan

    def receive(self, take: Callable[[], torch.Tensor]) -> torch.Tensor:
        """All GPUs of the slot do this together."""
        parcel = take() if self._part == 0 else self._form.empty()
        dist.broadcast(parcel, group_src=0, group=self._group)
        return parcel
