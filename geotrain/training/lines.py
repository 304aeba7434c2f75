"""The ways to a neighbour: torch.distributed inside a data center, our channels across."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from geotrain.errors import RunError
from geotrain.training.post import Key, Mailbox, ParcelForm
from geotrain.transport import Channel, DeadlineError, Direction, Header, TransportError

_TICK_S = 1.0


class WanLine:
    """Over a channel: each way has its thread, so that neither waits for the other nor lets compute wait."""

    def __init__(self, channel: Channel, job: str, pipeline: int, form: ParcelForm, mailbox: Mailbox) -> None:
        self._channel = channel
        self._job, self._pipeline, self._form, self._mailbox = job, pipeline, form, mailbox
        self._waiting: list[tuple[Key, torch.Tensor, Any]] = []
        self._work = threading.Condition()
        self._idle = True
        self._closed = False
        self._copies: Any = torch.cuda.Stream() if form.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._threads = [
            threading.Thread(target=target, name=f"parcels {name} {channel.peer}", daemon=True)
            for name, target in (("from", self._receive), ("to", self._send))
        ]
        if mailbox.foresees:
            channel.foretell(lambda header: mailbox.coming(_key(header)))
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
                    self._mailbox.put(_key(message.header), self._form.read(message.data))
        except Exception as error:
            if not self._closed or not isinstance(error, TransportError):
                self._mailbox.fail(error)


def _key(header: Header) -> Key:
    return Key(header.step, bool(header.direction), header.stage, header.microbatch)


class GlooLine:
    """Over torch.distributed on CPUs: a thread receives, in the order in which the far side's script sends."""

    def __init__(
        self, rank: int, expected: Sequence[tuple[bool, int, int]], form: ParcelForm, mailbox: Mailbox
    ) -> None:
        self._rank, self._expected, self._form, self._mailbox = rank, expected, form, mailbox
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
                    key, place = Key(step, backward, stage, microbatch), self._form.empty()
                    dist.recv(place, self._rank, tag=_tag(key))
                    self._mailbox.put(key, place)
        except Exception as error:
            self._mailbox.fail(RunError(f"rank {self._rank} of this data center is gone: {first_line(error)}"))


class NcclLine:
    """Over torch.distributed on GPUs: receives are posted ahead on the stream of their own group, in script order."""

    def __init__(
        self,
        rank: int,
        expected: Sequence[tuple[bool, int, int]],
        form: ParcelForm,
        mailbox: Mailbox,
        ways: tuple[dist.ProcessGroup, dist.ProcessGroup],
    ) -> None:
        self._rank, self._expected, self._form, self._mailbox = rank, expected, form, mailbox
        self._out, self._in = ways
        self._sent: list[tuple[dist.Work, torch.Tensor]] = []

    def begin(self, step: int) -> None:
        """Post all receives of the step: the group's own stream waits for each, compute for none of them yet."""
        self.finish(deadline_s=0.0)
        for backward, stage, microbatch in self._expected:
            place = self._form.empty()
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


def first_line(error: Exception) -> str:
    """What an error of torch says, without the stack that it appends."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
