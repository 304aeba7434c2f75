"""Plays a schedule on a problem: kernel in, Timeline out."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geotrain import interrupts
from geotrain.action import (
    KIND_MASK,
    MICROBATCH_MASK,
    MICROBATCH_SHIFT,
    PIPELINE_FREE,
    PIPELINE_SHIFT,
    STAGE_MASK,
    STAGE_SHIFT,
    Kind,
)
from geotrain.errors import InputError, ScheduleError
from geotrain.schedule import Orders, Rules, Schedule
from geotrain.simulation import kernel
from geotrain.simulation.problem import MOST_TICKS, Problem
from geotrain.simulation.wiring import Wiring
from geotrain.timeline import Actions, Floats, Ints, Timeline, Transfers


@dataclass(frozen=True, kw_only=True)
class Played:
    """A schedule that was played once: raw ticks, cheap to compare and to turn into a Timeline."""

    problem: Problem
    wiring: Wiring
    schedule: Schedule
    split: bool
    """Backward was played in two parts."""
    actions: Ints
    """[code | start | end, n] in ticks."""
    transfers: Ints
    """[code with the direction as its lowest bit | start | end | arrival, n] in ticks."""
    peak_units: Ints
    """[slot stage] memory units held at the peak, in any pipeline."""
    in_flight: Ints
    """[slot stage] most microbatches in flight, in any pipeline."""
    work_start: Ints
    """[slot stage] ticks at which its first action starts, in any pipeline."""
    work_end: Ints
    """[slot stage] ticks at which its last action ends, in any pipeline."""

    @property
    def step_ticks(self) -> int:
        """The step's length."""
        return int((self.work_end + self.problem.finish).max())

    @property
    def longest_span_ticks(self) -> int:
        """From a slot stage's first action to its last, where that takes longest."""
        return int((self.work_end - self.work_start).max())

    @cached_property
    def slot_of_action(self) -> Ints:
        """Index pipeline * slots + slot stage of each action."""
        slots, codes = len(self.problem.plan.stages), self.actions[0]
        return np.asarray((codes >> PIPELINE_SHIFT) * slots + (codes >> STAGE_SHIFT & STAGE_MASK) % slots)

    def orders(self) -> Orders:
        """What was done, as fixed lists, pipeline after pipeline."""
        slot, slots = self.slot_of_action, self.wiring.num_pipelines * len(self.problem.plan.stages)
        codes = self.actions[0, np.argsort(slot, kind="stable")] & PIPELINE_FREE
        return Orders(codes=tuple(np.split(codes, np.cumsum(np.bincount(slot, minlength=slots))[:-1])))

    def timeline(self) -> Timeline:
        """The step in seconds."""
        seconds, slots = self.problem.seconds, len(self.problem.plan.stages)
        update_start = self.problem.update_start(self.work_end)
        sender = self.transfers[0] >> STAGE_SHIFT & STAGE_MASK
        backward = (self.transfers[0] & 1).astype(np.bool_)
        return Timeline(
            num_stages=slots,
            num_pipelines=self.wiring.num_pipelines,
            copies=self.wiring.copies,
            actions=Actions(
                kind=self.actions[0] & KIND_MASK,
                stage=self.actions[0] >> STAGE_SHIFT & STAGE_MASK,
                microbatch=self.actions[0] >> MICROBATCH_SHIFT & MICROBATCH_MASK,
                pipeline=self.actions[0] >> PIPELINE_SHIFT,
                start_s=seconds(self.actions[1]),
                end_s=seconds(self.actions[2]),
            ),
            transfers=Transfers(
                source=sender % slots,
                target=(sender + np.where(backward, -1, 1)) % slots,
                backward=backward,
                stage=sender,
                microbatch=self.transfers[0] >> MICROBATCH_SHIFT & MICROBATCH_MASK,
                pipeline=self.transfers[0] >> PIPELINE_SHIFT,
                start_s=seconds(self.transfers[1]),
                end_s=seconds(self.transfers[2]),
                arrive_s=seconds(self.transfers[3]),
            ),
            reduce_start_s=seconds(self.work_end),
            update_start_s=seconds(update_start),
            update_end_s=seconds(update_start + self.problem.update),
        )


@dataclass(frozen=True, kw_only=True)
class Variation:
    """Factors by which single actions and transfers take longer or shorter than planned."""

    actions: Floats
    """[kind, (pipeline * stages + stage) * microbatches + microbatch]"""
    transfers: Floats
    """[direction, the same]"""


STEADY = Variation(actions=np.zeros((len(Kind), 0)), transfers=np.zeros((2, 0)))
"""All as planned."""
NO_HOLDS: Ints = np.zeros(0, dtype=np.int64)


class Board:
    """A problem with its wiring laid out once, to play many schedules on."""

    def __init__(self, problem: Problem, pooled: frozenset[int], *, alike: bool = True) -> None:
        self.problem = problem
        self.wiring = Wiring(problem, pooled, alike)
        problem.refuse_too_many(self.wiring.num_pipelines)
        shape = problem.shape
        channel, occupancy, latency, self._hop_bytes = self.wiring.hop_rows()
        hops_of_channel = np.bincount(channel[channel >= 0], minlength=1)
        self._num_transfers = self.wiring.num_pipelines * shape.num_microbatches * int(hops_of_channel.sum())
        self._queue_places = int(hops_of_channel.max()) * shape.num_microbatches
        self._channels = self.wiring.channel_tables()
        self._stages = np.zeros((kernel.STAGE_ROWS, shape.num_model_stages), dtype=np.int64)
        self._stages[kernel.SLOT] = np.arange(shape.num_model_stages) % shape.num_stages
        self._stages[kernel.RECOMPUTES, :-1] = shape.recompute  # the last stage goes straight from forward to backward
        self._stages[kernel.DURATION : kernel.DURATION + 5] = problem.durations
        self._stages[kernel.CHANNEL : kernel.CHANNEL + 2] = channel
        self._stages[kernel.OCCUPANCY : kernel.OCCUPANCY + 2] = occupancy
        self._stages[kernel.LATENCY : kernel.LATENCY + 2] = latency
        self._held = {split: problem.held(split=split) for split in (False, True)}
        self._idle = np.zeros((self.wiring.num_pipelines, shape.num_stages, kernel.SLOT_COLUMNS), dtype=np.int64)
        self._idle[:, :, kernel.PIPELINE] = np.arange(self.wiring.num_pipelines)[:, None]
        self._idle[:, :, kernel.LIMIT] = np.iinfo(np.int64).max // 4
        self._idle[:, :, [kernel.RUNNING, kernel.FIRST]] = kernel.NOTHING
        self._idle[:, :, kernel.AWAKE] = 1

    @property
    def num_spans(self) -> int:
        """About as many actions and transfers as a step has here."""
        shape = self.problem.shape
        kinds = 3 if shape.recompute else 2
        actions = self.wiring.num_pipelines * shape.num_microbatches * shape.num_model_stages * kinds
        return actions + self._num_transfers

    def play(self, schedule: Schedule, variation: Variation = STEADY, holds: Ints = NO_HOLDS) -> Played:
        """Play the schedule; ScheduleError if its slots wait for each other.

        `holds` is for fixed lists of every pipeline: ticks by which a slot is late for an action, all lists in a row.
        """
        self._refuse_too_long(variation, holds)
        shape, pipelines, split = self.problem.shape, self.wiring.num_pipelines, schedule.split
        self._stages[kernel.HELD : kernel.HELD + 5] = self._held[split]
        slots = self._slots(schedule)
        if isinstance(schedule, Orders):
            order = np.concatenate(schedule.codes)
            num_actions = len(order) * pipelines * shape.num_stages // len(schedule.codes)
        else:
            order = np.zeros(0, dtype=np.int64)
            kinds = (3 if split else 2) * shape.num_model_stages + int(self._stages[kernel.RECOMPUTES].sum())
            num_actions = pipelines * shape.num_microbatches * kinds
        channels, flows, links = (table.copy() for table in self._channels)
        try:
            actions, transfers = kernel.play(
                pipelines,
                shape.num_microbatches,
                num_actions,
                self._num_transfers,
                self._queue_places,
                self._stages,
                slots.reshape(-1, kernel.SLOT_COLUMNS),
                channels,
                flows,
                links,
                self._hop_bytes,
                order,
                int(split),
                int(isinstance(schedule, Rules) and schedule.looks_ahead),
                variation.actions,
                variation.transfers,
                holds,
            )
        except SystemError as error:
            if interrupts.is_interrupt(error):
                raise KeyboardInterrupt from None
            raise
        if slots[:, :, kernel.DONE_B].min() < shape.num_microbatches * shape.num_chunks:
            raise ScheduleError(
                f"the schedule stalls after {actions.shape[1]} of {num_actions} actions: all slots wait"
            )
        most = slots.max(axis=0)
        return Played(
            problem=self.problem,
            wiring=self.wiring,
            schedule=schedule,
            split=split,
            actions=actions,
            transfers=transfers,
            peak_units=most[:, kernel.PEAK],
            in_flight=most[:, kernel.IN_FLIGHT],
            work_start=slots[:, :, kernel.FIRST].min(axis=0),
            work_end=most[:, kernel.LAST],
        )

    def _refuse_too_long(self, variation: Variation, holds: Ints) -> None:
        """InputError if variation and holds make the step longer than its ticks can count."""
        slowest = max(1.0, variation.actions.max(initial=0.0), variation.transfers.max(initial=0.0))
        longest_s = self.problem.longest_s * slowest + float(self.problem.seconds(holds.sum(dtype=np.float64)))
        if not longest_s * 10.0**self.problem.digits <= 2 * MOST_TICKS:
            raise InputError(
                f"variation and delays make a step of at most {self.problem.longest_s:.3g} s last up to "
                f"{longest_s:.3g} s, which is too long to be simulated"
            )

    def _slots(self, schedule: Schedule) -> Ints:
        """[pipeline, slot]: the kernel's `slots` at the start of a step."""
        slots = self._idle.copy()
        if isinstance(schedule, Orders):
            lengths = np.array([len(codes) for codes in schedule.codes]).reshape(-1, slots.shape[1])
            stop = np.cumsum(lengths).reshape(lengths.shape)
            slots[:, :, kernel.NEXT] = stop - lengths
            slots[:, :, kernel.STOP] = stop
            return slots
        patience, durations = schedule.patience, self.problem.durations
        slots[:, :, kernel.AHEAD] = schedule.ahead
        slots[:, :, kernel.RECOMPUTE] = _RECOMPUTE[schedule.recompute]
        slots[:, :, kernel.W_BEFORE_F] = _share(patience.w_before_f, durations[Kind.W])
        slots[:, :, kernel.W_BEFORE_B] = _share(patience.w_before_b, durations[Kind.W])
        slots[:, :, kernel.F_BEFORE_B] = _share(patience.f_before_b, durations[Kind.F])
        if schedule.split:
            slots[:, :, kernel.LIMIT] = self.problem.limits(split=True, hold=schedule.hold)
        return slots


_RECOMPUTE = {"once-sent": kernel.ONCE_SENT, "early": kernel.EARLY, "after-forward": kernel.AFTER_FORWARD}


def _share(share: float, duration: Ints) -> Ints:
    """That share of each duration; holding up by more than a whole one never happens."""
    return np.asarray(np.rint(min(share, 1.0) * duration), dtype=np.int64)


def play(problem: Problem, schedule: Schedule, pooled: frozenset[int]) -> Played:
    """Play one schedule with those boundaries pooled."""
    return Board(problem, pooled).play(schedule)
