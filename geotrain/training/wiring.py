"""From a plan and a seat to the lines to its neighbours, with every process doing the same at the same time."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from geotrain.action import Kind
from geotrain.cluster import Link
from geotrain.network import connections_for, pair_rate
from geotrain.seating import Seat, Seating
from geotrain.training.control import Control
from geotrain.training.leaving import Leaving
from geotrain.training.lines import GlooLine, NcclLine, WanLine
from geotrain.training.post import Line, Mailbox, ParcelForm
from geotrain.training.script import Script
from geotrain.transport import Channel, Identity, Listener, Settings
from geotrain.transport.pool import Endpoint, Pooling, dialers, join

SPARE = 1 / 3
"""Connections over what the cluster file's window and round trip call for: real round trips are longer now and then."""
LEAST_SPARE = 2
"""Of few connections one more is not enough: a full window carries nothing until its last piece is acknowledged."""
_PIECE = 0.48
"""Of a window: two pieces fill it, with their frames. The end of one that does not fit comes a round trip late."""
_LEAST_PIECE_BYTES = 4096
_PARCELS_ON_THEIR_WAY = 4

_Sized = TypeVar("_Sized", Settings, Pooling)


@dataclass(frozen=True, kw_only=True)
class Wires:
    """A seat's lines by the slot stage they lead to, and the channels beneath those that cross the WAN."""

    lines: dict[int, Line]
    channels: dict[int, Channel]
    listeners: list[Listener]

    def close(self, patience_s: float) -> None:
        """Lines first, then what carries them."""
        for line in self.lines.values():
            line.close()
        for channel in self.channels.values():
            channel.close(deadline_s=patience_s)
        for listener in self.listeners:
            listener.close()


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What is needed to open them."""

    seating: Seating
    seat: Seat
    script: Script
    identity: Identity
    host: str
    form: ParcelForm
    mailbox: Mailbox
    peer_timeout_s: float
    deadline_s: float
    channels: list[Channel] = field(default_factory=list, init=False)
    """All that were opened."""

    @property
    def bytes_sent(self) -> int:
        """To other data centers so far, and acknowledged."""
        return sum(channel.counters.bytes_sent for channel in self.channels)

    def open(self, control: Control) -> Wires:
        """All processes of all data centers do this together."""
        seat, plan = self.seat, self.seating.plan
        across = [slot for slot in self.neighbours if plan.crosses_wan(seat.stage, slot)]
        listeners = {slot: self._listen(slot, self._together(slot)) for slot in across if seat.part == 0}
        told = control.gather({slot: listener.address for slot, listener in listeners.items()})
        addresses = {other.name: said for other, said in zip(self.seating.seats, told, strict=True)}
        channels = self._join(listeners, addresses)
        self.channels.extend(channels.values())
        ways = self._nccl_ways() if self.form.device.type == "cuda" else {}
        lines: dict[int, Line] = {}
        for slot in self.neighbours:
            if slot in channels:
                lines[slot] = WanLine(channels[slot], self.identity.job, seat.pipeline, self.form, self.mailbox)
            elif slot not in across:
                rank = self.seating.at(seat.pipeline, slot)[seat.part].rank
                expected = self._sent_from(slot)
                lines[slot] = (
                    NcclLine(rank, expected, self.form, self.mailbox, ways[rank])
                    if rank in ways
                    else GlooLine(rank, expected, self.form, self.mailbox)
                )
        return Wires(lines=lines, channels=channels, listeners=list(listeners.values()))

    def join_ends(self, control: Control, first: int, last: int, leaving: Leaving) -> Channel | None:
        """A channel between the two ends of the first pipeline, for who is one of them; all processes take part."""
        seat = self.seat
        listener = None
        if seat.pipeline == 0 and seat.stage in (first, last):
            other = last if seat.stage == first else first
            listener = self._listen(other, [seat.pipeline], part=seat.part)
        told = control.gather(None if listener is None else listener.address)
        if listener is None:
            return None
        at = dict(zip(self.seating.seats, told, strict=True))
        here, there = (
            [Endpoint(node=end.name, host=at[end][0], port=at[end][1])]
            for end in (seat, self.seating.at(0, other)[seat.part])
        )
        leaving.then(lambda patience_s: listener.close())
        channel = join(
            listener=listener,
            identity=self.identity,
            here=here,
            there=there,
            wan=self._settings(other),
            deadline_s=self.deadline_s,
        )
        leaving.then(lambda patience_s: channel.close(deadline_s=patience_s))
        self.channels.append(channel)
        return channel

    @property
    def neighbours(self) -> list[int]:
        """Slot stages that parcels go to or come from."""
        slots = self.script.num_stages
        mine = range(self.seat.stage, self.script.num_model_stages, slots)
        near = {near % slots for stage in mine for near in (stage - 1, stage + 1) if 0 <= near < len(mine) * slots}
        return sorted(near - {self.seat.stage})

    def _sent_from(self, slot: int) -> Sequence[tuple[bool, int, int]]:
        """The parcels that come from that slot in a step, in the order in which it sends them."""
        script, slots = self.script, self.script.num_stages
        sent = []
        for cue in script.cues(self._place, slot):
            stage, kind, microbatch = cue.action
            if kind is Kind.F and stage + 1 < script.num_model_stages and (stage + 1) % slots == self.seat.stage:
                sent.append((False, stage, microbatch))
            elif kind in (Kind.B, Kind.I) and stage > 0 and (stage - 1) % slots == self.seat.stage:
                sent.append((True, stage, microbatch))
        return sent

    @property
    def _place(self) -> int:
        return self.seat.pipeline % self.seating.plan.pipelines_per_cell

    def _link(self, slot: int) -> Link:
        return self.seating.plan.cluster.link(self.seat.dc, self.seating.plan.stages[slot].dc)

    def _settings(self, slot: int) -> Settings:
        link, wanted = self._link(slot), self.seating.plan.wan.connections
        if wanted == "auto" and link.pair_cap is not None and link.tcp_window_bytes is not None:
            needed = connections_for(link)
            wanted = needed + max(LEAST_SPARE, math.ceil(SPARE * needed))
        window_bytes = link.tcp_window_bytes or math.inf
        least = int(min(Settings.min_chunk_bytes, max(_LEAST_PIECE_BYTES, _PIECE * window_bytes)))
        settings = Settings(connections=wanted, min_chunk_bytes=least, peer_timeout_s=self.peer_timeout_s)
        return self._roomy(settings)

    def _roomy(self, settings: _Sized) -> _Sized:
        """Taking the plan's parcels, several at a time."""
        size_bytes = self.form.size_bytes
        return replace(
            settings,
            max_buffer_bytes=max(settings.max_buffer_bytes, size_bytes),
            window_bytes=max(settings.window_bytes, _PARCELS_ON_THEIR_WAY * size_bytes),
        )

    def _together(self, slot: int) -> Sequence[int]:
        """The pipelines that share the way to that slot."""
        seat = self.seat
        boundary = min(seat.stage, slot) if abs(seat.stage - slot) == 1 else max(seat.stage, slot)
        return self.seating.cell(seat.pipeline) if boundary in self.script.pooled else [seat.pipeline]

    def _listen(self, slot: int, together: Sequence[int], part: int = 0) -> Listener:
        """For those that dial from this cell and from that slot; others with a key of this run have no place here."""
        seat, seating = self.seat, self.seating
        cell = [seating.at(pipeline, seat.stage)[part].name for pipeline in together]
        expected = dialers(seat.name, cell, seating.at(seat.pipeline, slot)[part].name)
        return Listener(identity=self.identity, settings=self._settings(slot), host=self.host, expected=expected)

    def _join(
        self, listeners: dict[int, Listener], addresses: dict[str, dict[str, tuple[str, int]]]
    ) -> dict[int, Channel]:
        channels: dict[int, Channel] = {}
        errors: list[Exception] = []

        def endpoint(seat: Seat, towards: int) -> Endpoint:
            host, port = addresses[seat.name][str(towards)]
            return Endpoint(node=seat.name, host=host, port=port)

        def join_at(slot: int) -> None:
            seat = self.seat
            together = self._together(slot)
            try:
                channels[slot] = join(
                    listener=listeners[slot],
                    identity=self.identity,
                    here=[endpoint(self.seating.at(p, seat.stage)[0], slot) for p in together],
                    there=[endpoint(self.seating.at(p, slot)[0], seat.stage) for p in together],
                    wan=self._settings(slot),
                    pooling=self._pooling(slot),
                    deadline_s=self.deadline_s,
                )
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=join_at, args=(slot,), daemon=True) for slot in listeners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return channels

    def _pooling(self, slot: int) -> Pooling:
        link = self._link(slot)
        settings = self._settings(slot)
        if settings.connections == "auto" or link.rtt_s is None:
            return self._roomy(Pooling())
        rate = pair_rate(link, settings.connections)
        return self._roomy(Pooling.for_link(rate_bytes_per_s=rate, rtt_s=link.rtt_s))

    def _nccl_ways(self) -> dict[int, tuple[dist.ProcessGroup, dist.ProcessGroup]]:
        """Groups of two, one for each direction, so that neither blocks the other; all ranks make all of them."""
        seating, plan, dc = self.seating, self.seating.plan, self.seat.dc
        found: dict[int, list[dist.ProcessGroup]] = {}
        for source in seating.world(dc):
            for near in {(source.stage + 1) % len(plan.stages), (source.stage - 1) % len(plan.stages)}:
                target = seating.at(source.pipeline, near)[source.part]
                if target.dc != dc or target == source:
                    continue
                wait = timedelta(seconds=self.deadline_s)
                group = dist.new_group([source.rank, target.rank], timeout=wait, backend="nccl")
                assert group is not None
                if source == self.seat:
                    found.setdefault(target.rank, []).insert(0, group)
                elif target == self.seat:
                    found.setdefault(source.rank, []).append(group)
        return {rank: (groups[0], groups[1]) for rank, groups in found.items()}
