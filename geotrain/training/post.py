"""How parcels, which are activations and gradients, get from slot to slot while the slot computes.

Sending never waits for the far side. What arrives is put into a mailbox by threads, so that it is there when the
executor asks. Inside a data center torch.distributed carries parcels, across data centers our channels do.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist

from geotrain.errors import RunError
from geotrain.transport import Channel, DeadlineError, Direction, Header, TransportError

_TICK_S = 1.0


class Key(NamedTuple):
    """Which parcel: the activation (or gradient, backward) that leaves a stage of the model."""

    step: int
    backward: bool
    stage: int
    microbatch: int

    def __str__(self) -> str:
        what = "gradient" if self.backward else "activation"
        return f"the {what} of microbatch {self.microbatch} from stage {self.stage} in step {self.step}"


class Kind(NamedTuple):
    """What all parcels look like."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> torch.Tensor:
        """A place for one."""
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    def read(self, data: memoryview) -> torch.Tensor:
        """One that came as bytes; RunError if the size is wrong."""
        needs = torch.Size(self.shape).numel() * self.dtype.itemsize
        if data.nbytes != needs:
            raise RunError(f"a parcel of {data.nbytes} bytes came, and the plan's have {needs}: not the same model")
        return torch.frombuffer(data, dtype=self.dtype).view(self.shape).to(self.device, non_blocking=True)


class Mailbox:
    """What has arrived and was not asked for yet; any thread."""

    def __init__(self, on_arrival: Callable[[Key, float], None] = lambda key, at_s: None) -> None:
        self._parcels: dict[Key, tuple[torch.Tensor, Callable[[], object] | None]] = {}
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
            self._changed.notify_all()

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
        num_slots: int,
        lines: Mapping[int, Line],
        mailbox: Mailbox,
        deadline_s: float,
        on_send: Callable[[Key, float], None] = lambda key, at_s: None,
        shared: "Shared | None" = None,
    ) -> None:
        self._slot, self._num_slots, self._lines, self._mailbox = slot, num_slots, lines, mailbox
        self._deadline_s, self._on_send, self._shared = deadline_s, on_send, shared

    def begin(self, step: int) -> None:
        """A step begins."""
        for line in self._lines.values():
            line.begin(step)

    def send(self, step: int, backward: bool, stage: int, microbatch: int, parcel: torch.Tensor) -> None:
        """To the neighbour that needs it."""
        key = Key(step, backward, stage, microbatch)
        target = (stage - 1 if backward else stage + 1) % self._num_slots
        if target == self._slot:
            self._mailbox.put(key, parcel)
        elif target in self._lines:
            self._on_send(key, time.monotonic())
            self._lines[target].send(key, parcel)

    def has(self, step: int, backward: bool, stage: int, microbatch: int) -> bool:
        """Whether it is there."""
        return self._mailbox.has(Key(step, backward, stage, microbatch))

    def receive(self, step: int, backward: bool, stage: int, microbatch: int) -> torch.Tensor:
        """Wait for it."""
        key = Key(step, backward, stage, microbatch)
        if self._shared is not None and self._shared.comes_to_first(stage % self._num_slots):
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

    def __init__(self, group: dist.ProcessGroup, part: int, kind: Kind, over_wan: Collection[int]) -> None:
        self._group, self._part, self._kind, self._over_wan = group, part, kind, over_wan

    def comes_to_first(self, source: int) -> bool:
        """Whether parcels of that slot come to the first GPU only."""
        return source in self._over_wan

    def receive(self, take: Callable[[], torch.Tensor]) -> torch.Tensor:
        """All GPUs of the slot do this together."""
        parcel = take() if self._part == 0 else self._kind.empty()
        dist.broadcast(parcel, group_src=0, group=self._group)
        return parcel


class WanLine:
    """Over a channel: each way has its thread, so that neither waits for the other nor lets compute wait."""

    def __init__(self, channel: Channel, job: str, pipeline: int, kind: Kind, mailbox: Mailbox) -> None:
        self._channel = channel
        self._job, self._pipeline, self._kind, self._mailbox = job, pipeline, kind, mailbox
        self._waiting: list[tuple[Key, torch.Tensor, Any]] = []
        self._work = threading.Condition()
        self._idle = True
        self._closed = False
        self._copies: Any = torch.cuda.Stream() if kind.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._threads = [
            threading.Thread(target=target, name=f"parcels {name} {channel.peer}", daemon=True)
            for name, target in (("from", self._receive), ("to", self._send))
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, step: int) -> None:
        """Nothing to do: the channel takes what comes."""

    def send(self, key: Key, parcel: torch.Tensor) -> None:
        """Queue it; on a GPU its way to pinned memory begins at once, beside the computation."""
        ready = None
        if self._copies is not None:
            self._copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._copies):
                host = torch.empty(parcel.shape, dtype=parcel.dtype, pin_memory=True)
                host.copy_(parcel, non_blocking=True)
                parcel.record_stream(self._copies)
                parcel, ready = host, self._copies.record_event()
        with self._work:
            self._waiting.append((key, parcel, ready))
            self._idle = False
            self._work.notify()

    def finish(self, *, deadline_s: float) -> None:
        """Wait until the peer has acknowledged everything."""
        with self._work:
            if not self._work.wait_for(lambda: self._idle, deadline_s):
                raise RunError(f"{self._channel.peer}: parcels were not taken within {deadline_s:g} s")
        self._channel.flush(deadline_s=deadline_s)

    def close(self) -> None:
        """End the threads; the channel is its owner's."""
        with self._work:
            self._closed = True
            self._work.notify()

    def _send(self) -> None:
        try:
            while True:
                with self._work:
                    self._idle = not self._waiting
                    self._work.notify_all()
                    self._work.wait_for(lambda: self._waiting or self._closed)
                    if not self._waiting:
                        return
                    key, parcel, ready = self._waiting.pop(0)
                if ready is not None:
                    ready.synchronize()
                self._hand_over(key, parcel.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
        except Exception as error:
            self._mailbox.fail(error)

    def _hand_over(self, key: Key, data: memoryview) -> None:
        header = Header(
            job=self._job,
            step=key.step,
            pipeline=self._pipeline,
            stage=key.stage,
            microbatch=key.microbatch,
            direction=Direction(key.backward),
        )
        while True:
            with suppress(DeadlineError):
                self._channel.send(header, data, deadline_s=_TICK_S)
                return
            if self._closed:
                return

    def _receive(self) -> None:
        try:
            while not self._closed:
                with suppress(DeadlineError):
                    message = self._channel.receive(deadline_s=_TICK_S)
                    header = message.header
                    key = Key(header.step, bool(header.direction), header.stage, header.microbatch)
                    self._mailbox.put(key, self._kind.read(message.data))
        except Exception as error:
            if not self._closed or not isinstance(error, TransportError):
                self._mailbox.fail(error)


class GlooLine:
    """Over torch.distributed on CPUs: a thread receives, in the order in which the far side's script sends."""

    def __init__(self, rank: int, expected: Sequence[tuple[bool, int, int]], kind: Kind, mailbox: Mailbox) -> None:
        self._rank, self._expected, self._kind, self._mailbox = rank, expected, kind, mailbox
        self._sent: list[tuple[dist.Work, torch.Tensor]] = []
        self._begun: list[int] = []
        self._work = threading.Condition()
        self._closed = False
        threading.Thread(target=self._receive, name=f"parcels from rank {rank}", daemon=True).start()

    def begin(self, step: int) -> None:
        """Receive this step's parcels."""
        with self._work:
            self._begun.append(step)
            self._work.notify()

    def send(self, key: Key, parcel: torch.Tensor) -> None:
        """Hand it to gloo."""
        self._sent = [(work, parcel) for work, parcel in self._sent if not work.is_completed()]
        parcel = parcel.detach().contiguous()
        work = dist.isend(parcel, self._rank, tag=_tag(key))
        assert work is not None
        self._sent.append((work, parcel))

    def finish(self, *, deadline_s: float) -> None:
        """Wait for gloo, which keeps to the deadline of its group."""
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def close(self) -> None:
        """End the thread, after the last step."""
        with self._work:
            self._closed = True
            self._work.notify()

    def _receive(self) -> None:
        try:
            while True:
                with self._work:
                    self._work.wait_for(lambda: self._begun or self._closed)
                    if not self._begun:
                        return
                    step = self._begun.pop(0)
                for backward, stage, microbatch in self._expected:
                    key, place = Key(step, backward, stage, microbatch), self._kind.empty()
                    dist.recv(place, self._rank, tag=_tag(key))
                    self._mailbox.put(key, place)
        except Exception as error:
            self._mailbox.fail(RunError(f"rank {self._rank} of this data center is gone: {_first_line(error)}"))


class NcclLine:
    """Over torch.distributed on GPUs: receives are posted ahead on the stream of their own group, in script order."""

    def __init__(
        self,
        rank: int,
        expected: Sequence[tuple[bool, int, int]],
        kind: Kind,
        mailbox: Mailbox,
        ways: tuple[dist.ProcessGroup, dist.ProcessGroup],
    ) -> None:
        self._rank, self._expected, self._kind, self._mailbox = rank, expected, kind, mailbox
        self._out, self._in = ways
        self._sent: list[tuple[dist.Work, torch.Tensor]] = []

    def begin(self, step: int) -> None:
        """Post all receives of the step: the group's own stream waits for each, compute for none of them yet."""
        for backward, stage, microbatch in self._expected:
            place = self._kind.empty()
            work = dist.irecv(place, self._rank, group=self._in)
            assert work is not None
            self._mailbox.put(Key(step, backward, stage, microbatch), place, landed=work.wait)

    def send(self, key: Key, parcel: torch.Tensor) -> None:
        """Queue it on the group's stream."""
        parcel = parcel.detach().contiguous()
        work = dist.isend(parcel, self._rank, group=self._out)
        assert work is not None
        self._sent.append((work, parcel))

    def finish(self, *, deadline_s: float) -> None:
        """Let the compute stream wait for what was sent, so that its memory is not used again too early."""
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def close(self) -> None:
        """Nothing to do."""


def _tag(key: Key) -> int:
    return (key.microbatch << 17 | key.stage << 1 | key.backward) & 0x7FFFFFFF


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
