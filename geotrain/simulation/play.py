"""Plays a schedule on a problem: kernel in, Timeline out."""

from dataclasses import dataclass

import numpy as np

from geotrain.action import KIND_MASK, MICROBATCH_MASK, MICROBATCH_SHIFT, PIPELINE_SHIFT, STAGE_MASK, STAGE_SHIFT, Kind
from geotrain.errors import ScheduleError
from geotrain.network import ring_all_reduce_s
from geotrain.schedule import Orders, Rules, Schedule
from geotrain.simulation import kernel
from geotrain.simulation.problem import Problem
from geotrain.simulation.wiring import Wiring
from geotrain.timeline import Actions, Ints, Timeline, Transfers


@dataclass(frozen=True, kw_only=True)
class Played:
    """A schedule that was played once: raw ticks, cheap to compare and to turn into a Timeline."""

    problem: Problem
    wiring: Wiring
    schedule: Schedule
    actions: Ints
    """[code | start | end, n] in ticks."""
    transfers: Ints
    """[code with the direction as its lowest bit | start | end | arrival, n] in ticks."""
    peak_units: Ints
    """[slot stage] memory units held at the peak, in any pipeline."""

    @property
    def split(self) -> bool:
        """Whether backward was played in two parts."""
        return isinstance(self.schedule, Rules) and self.schedule.split

    work_start: Ints
    """[slot stage] ticks at which its first action starts, in any pipeline."""
    work_end: Ints
    """[slot stage] ticks at which its last action ends, in any pipeline."""

    def finish(self) -> tuple[Ints, Ints]:
        """Per slot stage: ticks of the all-reduce and of the optimizer that follow its last action."""
        problem, plan = self.problem, self.problem.plan
        slots = len(plan.stages)
        reduce_s = np.zeros(slots)
        update_s = np.zeros(slots)
        for slot in range(slots):
            costs = problem.costs[slot::slots]
            gradients = sum(cost.gradient_bytes for cost in costs)
            reduce_s[slot] = ring_all_reduce_s(plan.num_pipelines, gradients, plan.datacenter_of(slot))
            update_s[slot] = sum(cost.optimizer_s for cost in costs)
        return problem.ticks(reduce_s), problem.ticks(update_s)

    @property
    def step_ticks(self) -> int:
        """The step's length."""
        reduce, update = self.finish()
        return int((self.work_end + reduce + update).max())

    @property
    def longest_span_ticks(self) -> int:
        """From a slot stage's first action to its last, where that takes longest."""
        return int((self.work_end - self.work_start).max())

    def orders(self, pipeline: int = 0) -> Orders:
        """What a pipeline did, as fixed lists."""
        slots = len(self.problem.plan.stages)
        codes = self.actions[0][self.actions[0] >> PIPELINE_SHIFT == pipeline] - (pipeline << PIPELINE_SHIFT)
        slot = (codes >> STAGE_SHIFT) % slots
        return Orders(codes=tuple(codes[slot == s] for s in range(slots)))

    def timeline(self) -> Timeline:
        """The step in seconds."""
        seconds, slots = self.problem.seconds, len(self.problem.plan.stages)
        reduce, update = self.finish()
        work_end = self.work_end
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
            reduce_start_s=seconds(work_end),
            update_start_s=seconds(work_end + reduce),
            update_end_s=seconds(work_end + reduce + update),
        )


def play(problem: Problem, schedule: Schedule, pooled: frozenset[int]) -> Played:
    """Play the schedule with those boundaries pooled; ScheduleError if its slots wait for each other."""
    shape = problem.shape
    wiring = Wiring(problem, pooled)
    channel, occupancy, latency, hop_bytes = wiring.hop_rows()
    split = isinstance(schedule, Rules) and schedule.split
    order = np.concatenate(schedule.codes) if isinstance(schedule, Orders) else np.zeros(0, dtype=np.int64)

    stages = np.zeros((kernel.STAGE_ROWS, shape.num_model_stages), dtype=np.int64)
    stages[kernel.SLOT] = np.arange(shape.num_model_stages) % shape.num_stages
    stages[kernel.RECOMPUTES, :-1] = shape.recompute  # the last stage goes straight from forward to backward
    stages[kernel.DURATION : kernel.DURATION + 5] = problem.durations
    stages[kernel.HELD : kernel.HELD + 5] = problem.held(split=split)
    stages[kernel.CHANNEL : kernel.CHANNEL + 2] = channel
    stages[kernel.OCCUPANCY : kernel.OCCUPANCY + 2] = occupancy
    stages[kernel.LATENCY : kernel.LATENCY + 2] = latency

    kinds = 2 * shape.num_model_stages + split * shape.num_model_stages + int(stages[kernel.RECOMPUTES].sum())
    num_actions = wiring.num_pipelines * (len(order) or shape.num_microbatches * kinds)
    hops_of_channel = np.bincount(channel[channel >= 0], minlength=1)
    slots = _slots(problem, schedule, wiring.num_pipelines)
    actions, transfers = kernel.play(
        wiring.num_pipelines,
        shape.num_microbatches,
        num_actions,
        wiring.num_pipelines * shape.num_microbatches * int(hops_of_channel.sum()),
        int(hops_of_channel.max()) * shape.num_microbatches,
        stages,
        slots.reshape(-1, kernel.SLOT_COLUMNS),
        *wiring.channel_tables(),
        hop_bytes,
        order,
        int(split),
    )
    if actions.shape[1] != num_actions:
        raise ScheduleError(f"the schedule stalls after {actions.shape[1]} of {num_actions} actions: every slot waits")
    return Played(
        problem=problem,
        wiring=wiring,
        schedule=schedule,
        actions=actions,
        transfers=transfers,
        peak_units=slots[:, :, kernel.PEAK].max(axis=0),
        work_start=slots[:, :, kernel.FIRST].min(axis=0),
        work_end=slots[:, :, kernel.LAST].max(axis=0),
    )


def _slots(problem: Problem, schedule: Schedule, num_pipelines: int) -> Ints:
    """[pipeline, slot]: the kernel's `slots` at the start of a step."""
    shape = problem.shape
    slots = np.zeros((shape.num_stages, kernel.SLOT_COLUMNS), dtype=np.int64)
    slots[:, kernel.LIMIT] = problem.limits(schedule)
    slots[:, [kernel.RUNNING, kernel.COMING_F, kernel.COMING_B, kernel.FIRST]] = kernel.NOTHING
    slots[:, kernel.AWAKE] = 1
    if isinstance(schedule, Orders):
        ends = np.cumsum([len(codes) for codes in schedule.codes])
        slots[1:, kernel.NEXT] = ends[:-1]
        slots[:, kernel.STOP] = ends
    else:
        slots[:, kernel.AHEAD] = schedule.ahead
        patience = schedule.patience
        slots[:, kernel.W_BEFORE_F] = _share(patience.w_before_f, problem.durations[Kind.W])
        slots[:, kernel.W_BEFORE_B] = _share(patience.w_before_b, problem.durations[Kind.W])
        slots[:, kernel.F_BEFORE_B] = _share(patience.f_before_b, problem.durations[Kind.F])
    slots = np.tile(slots, (num_pipelines, 1, 1))
    slots[:, :, kernel.PIPELINE] = np.arange(num_pipelines)[:, None]
    return slots


def _share(share: float, duration: Ints) -> Ints:
    """That share of each duration; holding up by more than a whole one never happens."""
    return np.asarray(np.rint(min(share, 1.0) * duration), dtype=np.int64)
