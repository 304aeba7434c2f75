"""Training and prefill on the same slots, on one virtual clock, event by event.

Every slot has a worker that runs its tasks in order, unit by unit, while training does not need the slot. What a worker
may know of the end of its window is `Sight`; what really happens is decided here.
"""

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

import numpy as np

from geotrain.prefill.booking import Booking, Command, Run
from geotrain.prefill.fleet import Slot
from geotrain.prefill.request import End, Request
from geotrain.simulation.prefill.outcome import Spans
from geotrain.simulation.prefill.training import Training, View

_LITTLE = 1e-9
_SELDOM = 0.95


class Policy(Protocol):
    """Who decides what goes where: the controller, or a rival."""

    wake_s: float

    def arrive(self, request: Request, now_s: float) -> list[Command]:
        """A request."""

    def advance(self, now_s: float) -> list[Command]:
        """Its `wake_s` has come."""

    def step_began(self, now_s: float) -> None:
        """A step has."""

    def done(self, number: int, now_s: float) -> None:
        """A booking is."""

    def lost(self, slot: int, now_s: float) -> tuple[list[Booking], list[Command]]:
        """A slot died: what is void, what to do instead."""

    def give_up(self, now_s: float) -> tuple[list[Booking], list[Command]]:
        """What will never be done is void."""


class Sight(Protocol):
    """What a worker knows of a window's end."""

    def end_s(self, view: View, unit_s: float) -> float:
        """Until when the slot may be used by units of that length."""

    def guard_s(self, view: View) -> float:
        """How much of the window that leaves free."""


@dataclass(slots=True, eq=False)
class _Task:
    """One chunk of a booking on one slot."""

    booking: Booking
    place: int
    chunk: int
    units: int
    unit_s: float
    """As it really is."""
    ready: bool
    begun: bool = False


@dataclass(slots=True)
class _Worker:
    tasks: deque[_Task] = field(default_factory=deque)
    task: _Task | None = None
    """What it is doing."""
    units: int = 0
    """How many of the task's."""
    until_s: float = -math.inf
    due_s: float = math.inf
    """When it will look again."""
    dead: bool = False
    idle: tuple[str, float, float, float] | None = None
    """Why it is doing nothing, since when, from when on that is the guard, and until when."""


class Player:
    """One way of filling, over a whole trace."""

    def __init__(
        self,
        training: Training,
        slots: Sequence[Slot],
        policy: Policy,
        sight: Sight,
        *,
        pace: Callable[[Booking], float],
        clock: Callable[[], float],
        ask: Callable[[int, float], list[Command]] | None = None,
        deaths: Sequence[tuple[int, float]] = (),
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """`pace`: real over predicted time of a booking; `ask`: what to do on a slot that is free, if anybody cares."""
        self.training = training
        self._slots, self._policy, self._sight, self._ask = slots, policy, sight, ask
        self._pace, self._clock, self._deaths, self._progress = pace, clock, deaths, progress
        self._workers = [_Worker() for _ in slots]
        self._on_row: dict[int, list[int]] = defaultdict(list)
        for index, slot in enumerate(slots):
            if not slot.dedicated:
                self._on_row[slot.row].append(index)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._gone: set[int] = set()
        self._woken_s = math.nan
        self._last_s = 0.0
        self.ends: dict[int, tuple[End, str, float]] = {}
        """How every request ended: why, and when."""
        self.overruns = 0
        self.decision_s: list[float] = []
        self._wasted: list[tuple[str, int, float, float]] = []
        self.reused_tokens = self.tokens = 0
        self._spans: list[tuple[int, float, float, int, int]] = []

    def play(self, requests: Sequence[Request]) -> None:
        """Until every request has ended, and training has been seen as long as there were arrivals, and for a step."""
        self._last_s = requests[-1].arrival_s
        for request in requests:
            self._at(request.arrival_s, partial(self._arrive, request))
        for slot, time_s in self._deaths:
            self._at(time_s, partial(self._kill, slot))
        self._at(self.training.end_s, self._roll)
        while len(self.ends) < len(requests) or self.training.begin_s < self._last_s or self.training.number == 0:
            now_s, _, happen = heapq.heappop(self._events)
            happen(now_s)

    def _at(self, time_s: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._numbers), happen))

    # Decisions

    def _decide(self, act: Callable[[], list[Command]], now_s: float) -> None:
        began = self._clock()
        commands = act()
        self.decision_s.append(self._clock() - began)
        self._obey(commands, now_s)

    def _obey(self, commands: Sequence[Command], now_s: float) -> None:
        for command in commands:
            if isinstance(command, Run):
                self._start(command.booking, now_s)
            else:
                self._end(command.request, command.end, command.reason, now_s)
        wake_s = self._policy.wake_s
        if wake_s not in (math.inf, self._woken_s):
            self._woken_s = wake_s
            self._at(max(now_s, wake_s), partial(self._wake, wake_s))

    def _arrive(self, request: Request, now_s: float) -> None:
        self._decide(lambda: self._policy.arrive(request, now_s), now_s)
        if self._ask is not None:
            for slot, worker in enumerate(self._workers):
                if not worker.tasks:
                    self._poke(slot, now_s)

    def _wake(self, wake_s: float, now_s: float) -> None:
        if wake_s == self._policy.wake_s:
            self._decide(lambda: self._policy.advance(now_s), now_s)

    def _end(self, request: Request, end: End, reason: str, now_s: float) -> None:
        assert request.id not in self.ends, f"request {request.id} ends twice"
        self.ends[request.id] = end, reason, now_s

    def _kill(self, slot: int, now_s: float) -> None:
        self._workers[slot].dead = True
        self._drop(*self._policy.lost(slot, now_s), now_s)

    def _drop(self, void: list[Booking], commands: list[Command], now_s: float) -> None:
        self._gone |= {booking.number for booking in void}
        for worker in self._workers if void else ():
            worker.tasks = deque(task for task in worker.tasks if task.booking.number not in self._gone)
        self._obey(commands, now_s)

    def _roll(self, now_s: float) -> None:
        """The step is over, unless its end has moved meanwhile."""
        if now_s != self.training.end_s:
            return
        self.training.roll()
        self._at(self.training.end_s, self._roll)
        self._policy.step_began(now_s)
        self._drop(*self._policy.give_up(now_s), now_s)
        self._decide(lambda: self._policy.advance(now_s), now_s)
        if self._progress is not None:
            self._progress(min(1.0, now_s / self._last_s) if self._last_s else 1.0)

    # Tasks

    def _start(self, booking: Booking, now_s: float) -> None:
        pace, layers = self._pace(booking), booking.layers
        for place, slot in enumerate(booking.slots):
            self._workers[slot].tasks.extend(
                _Task(booking, place, chunk, layers[place], unit_s * pace, place == 0)
                for chunk, unit_s in enumerate(booking.unit_s)
            )
            self._poke(slot, now_s)

    def _finish(self, task: _Task, now_s: float) -> None:
        booking = task.booking
        if task.place + 1 < booking.kind.degree:
            self._at(now_s + booking.hop_s, partial(self._ready, task))
        elif task.chunk + 1 == len(booking.unit_s):
            self._at(now_s + booking.hand_over_s, partial(self._done, booking))

    def _ready(self, before: _Task, now_s: float) -> None:
        slot = before.booking.slots[before.place + 1]
        for task in self._workers[slot].tasks:
            if task.booking is before.booking and task.chunk == before.chunk:
                task.ready = True
                self._poke(slot, now_s)
                break

    def _done(self, booking: Booking, now_s: float) -> None:
        if booking.number in self._gone:
            return
        for request in booking.requests:
            self._end(request, End.DONE, "", now_s)
        self.tokens += booking.tokens
        self.reused_tokens += booking.cached_tokens
        self._policy.done(booking.number, now_s)
        if now_s >= self._policy.wake_s:
            self._decide(lambda: self._policy.advance(now_s), now_s)

    # Slots

    def _poke(self, slot: int, time_s: float) -> None:
        """Look at the slot then, unless it will be looked at earlier or is in the middle of a piece."""
        worker = self._workers[slot]
        time_s = max(time_s, worker.until_s)
        if time_s < worker.due_s:
            worker.due_s = time_s
            self._at(time_s, partial(self._look, slot))

    def _look(self, slot: int, now_s: float) -> None:
        worker = self._workers[slot]
        if now_s != worker.due_s:
            return
        worker.due_s = math.inf
        self._settle(worker, now_s)
        self._account(slot, now_s)
        if worker.dead:
            return
        if self._slots[slot].dedicated:
            task = self._next_task(slot, now_s, math.inf)
            if task is not None:
                self._piece(slot, task, task.units, now_s)
            return
        view = self.training.view(self._slots[slot].row, now_s)
        if view.wanted_s <= now_s:
            self._poke(slot, view.back_s)
            return
        task = self._next_task(slot, now_s, view.wanted_s)
        units = 0 if task is None else self._fitting(worker, task, view)
        if task is None or units == 0:
            # Without tasks nobody needs to look, unless free slots are asked for.
            if worker.tasks or self._ask is not None:
                self._poke(slot, view.back_s)
            return
        self._piece(slot, task, units, now_s)
        if worker.until_s > view.wanted_s:
            self._overrun(slot, view)

    def _overrun(self, slot: int, view: View) -> None:
        """A piece is in training's way; if training comes sooner to other slots therefore, maybe there too."""
        self.overruns += 1
        end_s = self.training.end_s
        sooner = self.training.hold(view, self._workers[slot].until_s - view.wanted_s)
        if self.training.end_s != end_s:
            self._at(self.training.end_s, self._roll)
        for other in (other for row in sooner for other in self._on_row[row]):
            worker = self._workers[other]
            if worker.task is not None and worker.until_s > view.now_s:
                there = self.training.view(self._slots[other].row, view.now_s)
                if worker.until_s > there.wanted_s + self.training.late_s(there) + _LITTLE:
                    self._overrun(other, there)

    def _settle(self, worker: _Worker, now_s: float) -> None:
        """What the worker was doing is done."""
        task, worker.task = worker.task, None
        if task is None or task.booking.number in self._gone:
            return
        task.units -= worker.units
        task.begun = True
        if task.units == 0:
            worker.tasks.remove(task)
            self._finish(task, now_s)

    def _account(self, slot: int, now_s: float) -> None:
        """What the worker has left unused since it last looked."""
        worker = self._workers[slot]
        if worker.idle is not None:
            reason, since_s, guard_s, until_s = worker.idle
            until_s = min(now_s, until_s)
            guard_s = min(guard_s, until_s)
            self._wasted += [(reason, slot, since_s, guard_s), ("guard", slot, guard_s, until_s)]
            worker.idle = None

    def _next_task(self, slot: int, now_s: float, wanted_s: float) -> _Task | None:
        """The first that is ready."""
        worker = self._workers[slot]
        if not worker.tasks and self._ask is not None:
            ask = self._ask
            self._decide(lambda: ask(slot, now_s), now_s)
            worker.due_s = math.inf  # it is looking already
        task = next((task for task in worker.tasks if task.ready), None)
        if worker.tasks and task is None:
            worker.idle = "waiting", now_s, wanted_s, wanted_s
        return task

    def _fitting(self, worker: _Worker, task: _Task, view: View) -> int:
        """Units of the task to run now: each is begun only if it should end in time, the last may be in training's way.

        The first is judged by a time that it seldom exceeds, the others by what the first one took.
        """
        booking, now_s = task.booking, view.now_s
        unit_s = task.unit_s if task.begun else booking.unit_s[task.chunk] * booking.kind.time.factor(_SELDOM)
        end_s = self._sight.end_s(view, unit_s)
        self.training.count_on(view, end_s + self._sight.guard_s(view))
        after_one = (end_s - now_s - unit_s) / task.unit_s + _LITTLE
        if after_one < 0:
            guard_s = max(now_s, view.wanted_s - self._sight.guard_s(view))
            reason = "too short" if guard_s - now_s <= unit_s else "mispredicted"
            worker.idle = reason, now_s, guard_s, view.wanted_s
            return 0
        units = task.units if after_one >= task.units else 1 + math.floor(after_one)
        until_wanted = max(1, math.ceil((view.wanted_s - now_s) / task.unit_s - _LITTLE))
        return min(units, until_wanted)

    def _piece(self, slot: int, task: _Task, units: int, now_s: float) -> None:
        worker, booking = self._workers[slot], task.booking
        worker.task, worker.units = task, units
        worker.until_s = now_s + units * task.unit_s
        new_tokens = booking.tokens - booking.cached_tokens
        self._spans.append((slot, now_s, worker.until_s, booking.requests[0].id, new_tokens))
        self._poke(slot, worker.until_s)

    def wasted_s(self, num_slots: int, until_s: float) -> dict[str, float]:
        """By reason, on the first slots up to then."""
        wasted = dict.fromkeys(("guard", "too short", "mispredicted", "waiting"), 0.0)
        for reason, slot, start_s, end_s in self._wasted:
            if slot < num_slots:
                wasted[reason] += max(0.0, min(end_s, until_s) - start_s)
        return wasted

    @property
    def spans(self) -> Spans:
        """Prefill, piece by piece."""
        rows = sorted(self._spans, key=lambda span: span[1])
        return Spans(
            slot=np.array([span[0] for span in rows], dtype=np.int64),
            start_s=np.array([span[1] for span in rows], dtype=np.float64),
            end_s=np.array([span[2] for span in rows], dtype=np.float64),
            request=np.array([span[3] for span in rows], dtype=np.int64),
            tokens=np.array([span[4] for span in rows], dtype=np.int64),
        )
