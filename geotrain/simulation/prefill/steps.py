"""Training, step after step, each with its own luck; whoever keeps a slot too long delays all that hangs on it.

One cell is played, all of its pipelines; other cells are copies with the same luck. A slot is an index,
pipeline * stages + stage. A position is an action's place in the slot's fixed list; one more, the last, is the
stage's all-reduce and optimizer.
"""

from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from geotrain.action import Action, Kind
from geotrain.errors import InputError
from geotrain.network import path_between
from geotrain.schedule import Orders
from geotrain.simulation.play import STEADY, Board, Played, Variation
from geotrain.simulation.prefill.weather import Weather
from geotrain.simulation.problem import Problem
from geotrain.timeline import Ints, Timeline


class Trigger(NamedTuple):
    """Whose start tells that training will want a slot: the action whose result is needed there."""

    slot: int
    position: int
    notice_s: float
    """What a tiny message needs from there."""


class Steps:
    """A plan's schedule, as fixed lists, in any weather."""

    def __init__(self, played: Played, weather: Weather) -> None:
        problem = Problem(played.problem.plan, stretch=weather.stretch)
        self.board = Board(problem, played.wiring.pooled, alike=False)
        self.num_stages = problem.shape.num_stages
        self.num_slots = self.board.wiring.num_pipelines * self.num_stages
        lists = played.orders().codes
        self.orders = Orders(codes=lists * (self.num_slots // len(lists)))
        self.edges = [0, *accumulate(map(len, self.orders.codes))]
        """Where each slot's list begins, all lists one after another; and where the last one ends."""
        for spell in weather.spells:
            if spell.on != "wan" and not 0 <= spell.on < self.num_slots:
                raise InputError(f"a spell is on slot {spell.on} and must be on one of 0 to {self.num_slots - 1}")
        self._weather = weather
        self.steady = Step(self, STEADY, 1.0)
        """As planned."""
        self.triggers = self._triggers()
        """[slot][position]; None: what is needed is made on the slot itself, or nothing is."""

    def play(self, number: int, start_s: float) -> "Step":
        """The step with that number, in the weather of that time."""
        return Step(self, self._weather.variation(self.board, number, start_s), self._weather.factor(number))

    @cached_property
    def timeline(self) -> Timeline:
        """The steady step. Shorter than the plan's where rules put off a recompute that the lists do at once."""
        return self.board.play(self.orders).timeline()

    def _triggers(self) -> list[list[Trigger | None]]:
        num_stages, plan = self.num_stages, self.board.problem.plan
        actions = [[Action.unpack(code) for code in codes.tolist()] for codes in self.orders.codes]
        made = {
            (slot // num_stages, action.kind == Kind.F, action.stage, action.microbatch): (slot, position)
            for slot, mine in enumerate(actions)
            for position, action in enumerate(mine)
            if action.kind in (Kind.F, Kind.B, Kind.I)
        }

        @cache
        def notice_s(source: int, target: int) -> float:
            return path_between(plan, source, target, pooled=False, size_bytes=0).latency_s

        def trigger(slot: int, by: int, position: int) -> Trigger:
            return Trigger(by, position, notice_s(by % num_stages, slot % num_stages))

        def of(slot: int, action: Action) -> Trigger | None:
            if action.kind in (Kind.R, Kind.W):
                return None
            forward = action.kind == Kind.F
            needed = slot // num_stages, forward, action.stage + (-1 if forward else 1), action.microbatch
            there, position = made.get(needed, (slot, 0))
            return None if there == slot else trigger(slot, there, position)

        def of_last(slot: int) -> Trigger | None:
            others = [other for other in range(slot % num_stages, self.num_slots, num_stages) if other != slot]
            if not others:
                return None
            latest = max(others, key=lambda other: self.steady.ends_s[other][-2])
            return trigger(slot, latest, len(actions[latest]) - 1)

        return [[*(of(slot, action) for action in mine), of_last(slot)] for slot, mine in enumerate(actions)]


class Step:
    """One step: when training wants its slots and when it gives them back, in seconds from the step's start."""

    starts_s: list[list[float]]
    """[slot][position]: training wants the slot."""
    ends_s: list[list[float]]
    """[slot][position]: training gives it back."""
    length_s: float
    """Until the last stage has finished."""
    undisturbed_s: float
    """The length without any hold."""

    def __init__(self, steps: Steps, variation: Variation, factor: float) -> None:
        self._steps, self._variation, self._factor = steps, variation, factor
        self._holds = np.zeros(steps.edges[-1], dtype=np.int64)
        self._last_holds = np.zeros((steps.num_slots // steps.num_stages, steps.num_stages), dtype=np.int64)
        self._replay()
        self.undisturbed_s = self.length_s

    def hold(self, slot: int, position: int, delay_s: float) -> None:
        """Training gets the slot that long after it wanted it, there; replaces what was said before."""
        assert delay_s >= 0, f"a hold of {delay_s} s"
        steps = self._steps
        delay = int(steps.board.problem.ticks(delay_s / self._factor))
        if position == len(steps.orders.codes[slot]):
            self._last_holds[divmod(slot, steps.num_stages)] = delay
        else:
            self._holds[steps.edges[slot] + position] = delay
        self._replay()

    @property
    def taken_s(self) -> float:
        """Seconds in which training has the slots, all together."""
        wanted = sum(sum(ends) - sum(starts) for starts, ends in zip(self.starts_s, self.ends_s, strict=True))
        held = int(self._holds.sum()) + sum(self._last_holds.max(axis=0).tolist()) * len(self._last_holds)
        return wanted - self._in_seconds(held)

    @property
    def busy_s(self) -> float:
        """Seconds in which it computes on them: all but the all-reduce."""
        return self.taken_s - self._in_seconds(int(self._reduce.sum()) * len(self._last_holds))

    def update_s(self, slot: int) -> float:
        """The optimizer's part of the slot's last position."""
        return self._in_seconds(int(self._steps.board.problem.update[slot % self._steps.num_stages]))

    def _in_seconds(self, ticks: int) -> float:
        return float(self._steps.board.problem.seconds(np.array(ticks))) * self._factor

    def _replay(self) -> None:
        board = self._steps.board
        played = board.play(self._steps.orders, self._variation, self._holds)
        by_slot = np.argsort(played.slot_of_action, kind="stable")
        # The all-reduce of a stage waits for its last slot.
        reduce_start = played.work_end + self._last_holds.max(axis=0)
        update_start = board.problem.update_start(reduce_start)
        self._reduce = update_start - reduce_start
        self.starts_s = self._lists(played.actions[1, by_slot], played.work_end)
        self.ends_s = self._lists(played.actions[2, by_slot], update_start + board.problem.update)
        self.length_s = max(ends[-1] for ends in self.ends_s)

    def _lists(self, actions: Ints, last: Ints) -> list[list[float]]:
        """Ticks of all actions, slot after slot, and of each stage's last position, by slot and in seconds."""
        seconds, stages = self._steps.board.problem.seconds, self._steps.num_stages
        each = (seconds(actions) * self._factor).tolist()
        lasts = (seconds(last) * self._factor).tolist()
        return [[*each[a:b], lasts[slot % stages]] for slot, (a, b) in enumerate(pairwise(self._steps.edges))]
