"""What all processes of a run tell each other: addresses, the step to resume from, losses, gradient norms.

Inside a data center gloo carries it; the leaders, which are the ranks 0, meet at one well-known address: the leader of
the first data center listens there, the others dial. Words are JSON, never pickled objects.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from geotrain.errors import RunError
from geotrain.seating import Seat, Seating
from geotrain.training.gloo import MOST_WORDS_BYTES, broadcast, gather
from geotrain.transport import (
    Channel,
    DeadlineError,
    Direction,
    Header,
    Identity,
    Listener,
    Settings,
    TransportError,
    connect,
)

_CHANNEL = "control"
_CLOCK_ROUNDS = 5
_MOST_DEPTH = 16
"""Lists and mappings within each other in what a leader says: far more than there are."""


class Control:
    """One process's way to all others; every call is made by all of them, in the same order."""

    def __init__(self, seating: Seating, seat: Seat, leaders: dict[str, Channel], job: str, deadline_s: float) -> None:
        self.seat = seat
        self._seating, self._job, self._deadline_s = seating, job, deadline_s
        self._leaders = leaders
        """Of a leader: the channels to the other leaders by data center; only the first has more than one."""
        self._world = len(seating.world(seat.dc))

    def gather(self, words: Any) -> list[Any]:
        """What everybody says, in the order of seats."""
        here = gather(words, self._world)
        if len(self._seating.dcs) == 1:
            return here
        everybody = self._meet(here) if self.seat.rank == 0 else []
        worlds = json.loads(broadcast(json.dumps(everybody).encode(), self._world))
        return [words for world in worlds for words in world]

    def _meet(self, here: list[Any]) -> list[list[Any]]:
        first, *others = self._seating.dcs
        if self.seat.dc != first:
            self._say(first, here)
            heard = self._hear(first)
            if not isinstance(heard, list) or len(heard) != len(self._seating.dcs):
                raise _nonsense(first)
            return [self._checked(first, dc, world) for dc, world in zip(self._seating.dcs, heard, strict=True)]
        everybody = [here, *(self._checked(dc, dc, self._hear(dc)) for dc in others)]
        for dc in others:
            self._say(dc, everybody)
        return everybody

    def _checked(self, teller: str, dc: str, world: Any) -> list[Any]:
        """The words of a data center: one entry for each process there."""
        if not isinstance(world, list) or len(world) != len(self._seating.world(dc)):
            raise _nonsense(teller)
        return world

    def clock_offset_s(self) -> float:
        """What to add to this process's monotonic clock to have the first leader's."""
        to_leader_s = self._offset_to_rank_0()
        across = [0.0]
        if self.seat.rank == 0:
            across = [self._offset_to_first_leader()]
        return to_leader_s + float(json.loads(broadcast(json.dumps(across).encode(), self._world))[0])

    def _offset_to_rank_0(self) -> float:
        offset = 0.0
        for rank in range(1, self._world):
            if self.seat.rank == 0:
                for _ in range(_CLOCK_ROUNDS):
                    dist.recv(torch.zeros(1), rank)
                    dist.send(torch.tensor([time.monotonic()], dtype=torch.float64), rank)
            elif self.seat.rank == rank:
                offset = _best_offset(_ask_rank_0)
        return offset

    def _offset_to_first_leader(self) -> float:
        first, *others = self._seating.dcs
        if self.seat.dc == first:
            for dc in others:
                for _ in range(_CLOCK_ROUNDS):
                    self._hear(dc)
                    self._say(dc, time.monotonic())
            return 0.0

        def ask() -> float:
            self._say(first, None)
            if not isinstance(theirs_s := self._hear(first), float):
                raise _nonsense(first)
            return theirs_s

        return _best_offset(ask)

    def _say(self, dc: str, words: Any) -> None:
        self._leaders[dc].send(_header(self._job), json.dumps(words).encode(), deadline_s=self._deadline_s)

    def _hear(self, dc: str) -> Any:
        data = bytes(self._leaders[dc].receive(deadline_s=self._deadline_s).data)
        try:
            words = json.loads(data)
        except (ValueError, RecursionError):
            raise _nonsense(dc) from None
        if not _is_shallow(words, _MOST_DEPTH):
            raise _nonsense(dc)
        return words

    def flush(self) -> None:
        """Wait until the other leaders have what was said: for who is about to end because of it, as they will."""
        for channel in self._leaders.values():
            channel.flush(deadline_s=self._deadline_s)

    def close(self, patience_s: float) -> None:
        """Take leave of the other leaders."""
        for channel in self._leaders.values():
            channel.close(deadline_s=patience_s)


class Meeting:
    """How the leaders find each other, again and again until all of them are there."""

    def __init__(
        self, seating: Seating, seat: Seat, identity: Identity, address: tuple[str, int], peer_timeout_s: float
    ) -> None:
        self._seating, self._seat, self._identity, self._address = seating, seat, identity, address
        self._settings = Settings(
            connections=1,
            max_buffer_bytes=MOST_WORDS_BYTES,
            window_bytes=2 * MOST_WORDS_BYTES,
            peer_timeout_s=peer_timeout_s,
        )
        self.on_restart: Callable[[Exception], None] = lambda error: None
        """Called, from a thread, when a leader comes again: its data center has restarted."""
        self._listener: Listener | None = None

    def open(self, deadline_s: float) -> dict[str, Channel]:
        """Channels to the other leaders; none for who is no leader."""
        if self._seat.rank != 0 or len(self._seating.dcs) == 1:
            return {}
        first, *others = self._seating.dcs
        if self._seat.dc == first:
            return self._await(others, deadline_s)
        return {first: self._dial(f"{first}-0", deadline_s)}

    def _await(self, others: Sequence[str], deadline_s: float) -> dict[str, Channel]:
        host, port = self._address
        self._listener = listener = Listener(
            identity=self._identity,
            settings=self._settings,
            host=host,
            port=port,
            # Others with a key of this run have no say here.
            expected={(f"{dc}-0", _CHANNEL) for dc in others},
        )
        channels: dict[str, Channel] = {}
        end_s = time.monotonic() + deadline_s
        while missing := [dc for dc in others if dc not in channels]:
            try:
                channel = listener.accept(deadline_s=max(0.0, end_s - time.monotonic()))
            except DeadlineError:
                strangers = f"; turned away: {', '.join(listener.turned_away)}" if listener.turned_away else ""
                raise RunError(
                    f"{', '.join(missing)}: did not come to {host}:{port} within {deadline_s:g} s{strangers}"
                ) from None
            # Who comes twice has restarted in the meantime: the later one counts.
            channels[channel.peer.removesuffix("-0")] = channel
        for welcome in channels.values():
            welcome.send(_header(self._identity.job), b"welcome", deadline_s=deadline_s)
        threading.Thread(target=self._watch, name="control", daemon=True).start()
        return channels

    def _dial(self, leader: str, deadline_s: float) -> Channel:
        """Until a leader says welcome: one that is about to end, because somebody restarted, does not."""
        host, port = self._address
        end_s = time.monotonic() + deadline_s
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            channel = connect(
                host,
                port,
                identity=self._identity,
                peer=leader,
                channel=_CHANNEL,
                settings=self._settings,
                deadline_s=left_s,
            )
            try:
                channel.receive(deadline_s=max(0.0, end_s - time.monotonic()))
                return channel
            except DeadlineError:
                raise RunError(f"{leader} at {host}:{port}: not everybody came within {deadline_s:g} s") from None
            except TransportError:
                channel.close(deadline_s=0)

    def _watch(self) -> None:
        assert self._listener is not None
        with suppress(TransportError):
            while True:
                with suppress(DeadlineError):
                    peer = self._listener.accept(deadline_s=60.0).peer
                    self.on_restart(RunError(f"{peer}: has restarted"))

    def close(self) -> None:
        """Let nobody in any more."""
        if self._listener is not None:
            self._listener.close()


def _nonsense(dc: str) -> RunError:
    return RunError(
        f"{dc}-0: said something on the control channel that makes no sense; is its geotrain another version?"
    )


def _is_shallow(words: Any, most: int) -> bool:
    """Whether lists and mappings are nested at most so deep: what is passed on must not exhaust the stack either."""
    inside = words.values() if isinstance(words, dict) else words if isinstance(words, list) else ()
    return most > 0 and all(_is_shallow(word, most - 1) for word in inside)


def _header(job: str) -> Header:
    return Header(job=job, step=0, pipeline=0, stage=0, microbatch=0, direction=Direction.FORWARD)


def _best_offset(ask: Callable[[], float]) -> float:
    """Of several questions the one that was answered fastest tells the other clock best."""
    rounds = []
    for _ in range(_CLOCK_ROUNDS):
        before_s = time.monotonic()
        theirs_s = ask()
        after_s = time.monotonic()
        rounds.append((after_s - before_s, theirs_s - (before_s + after_s) / 2))
    return min(rounds)[1]


def _ask_rank_0() -> float:
    answer = torch.zeros(1, dtype=torch.float64)
    dist.send(torch.zeros(1), 0)
    dist.recv(answer, 0)
    return float(answer)
