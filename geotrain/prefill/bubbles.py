"""Bubbles of a step: when each slot is idle, and the memory it has left then. From any Timeline, played or measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from geotrain.action import Kind
from geotrain.cost import StageCost
from geotrain.timeline import Floats, Ints, Timeline


@dataclass(frozen=True, kw_only=True)
class Bubbles:
    """Windows of all slots of a cell, slot after slot, in order of time; relative to the step's start.

    There is one before every span of training, if only of no length: in another step it may have some. A slot's time
    after its last work of one step and before its first of the next is one window, which begins before 0.
    """

    step_time_s: float
    first: Ints
    """[slot, and one more]: where its windows begin."""
    position: Ints
    """How many spans of training come before the window in its step; the all-reduce and the optimizer are one span."""
    start_s: Floats
    end_s: Floats
    free_bytes: Floats
    """What one GPU of the slot has left during the window."""

    @property
    def num_slots(self) -> int:
        """Slots, pipeline after pipeline."""
        return len(self.first) - 1

    def of(self, slot: int) -> slice:
        """Where the slot's windows are."""
        return slice(int(self.first[slot]), int(self.first[slot + 1]))

    @property
    def idle_s(self) -> Floats:
        """Per slot and step."""
        return np.array([(self.end_s - self.start_s)[self.of(slot)].sum() for slot in range(self.num_slots)])


def bubbles(timeline: Timeline, costs: Sequence[StageCost], memory_bytes: Sequence[float]) -> Bubbles:
    """Of the timeline's slots; `memory_bytes` is what one GPU of each slot stage has."""
    order, actions = timeline.by_slot, timeline.actions
    edges = np.searchsorted(timeline.slot_of_action[order], np.arange(timeline.num_pipelines * timeline.num_stages + 1))
    found: list[tuple[int, int, float, float, float]] = []
    for slot, (begin, end) in enumerate(pairwise(edges)):
        rows, stage = order[begin:end], slot % timeline.num_stages
        starts = np.append(actions.start_s[rows], timeline.reduce_start_s[stage])
        ends = np.append(actions.end_s[rows], timeline.update_end_s[stage])
        opens = np.append(ends[-1] - timeline.step_time_s, ends[:-1])
        free = _free_bytes(
            actions.kind[rows], actions.stage[rows], costs, slice(stage, None, timeline.num_stages), memory_bytes[stage]
        )
        found += [(slot, *rest) for rest in zip(range(len(starts)), opens, starts, free, strict=True)]
    slots, positions, opened, closed, left = (np.array(column) for column in zip(*found, strict=True))
    return Bubbles(
        step_time_s=timeline.step_time_s,
        first=np.searchsorted(slots, np.arange(len(edges))),
        position=positions,
        start_s=opened,
        end_s=closed,
        free_bytes=left,
    )


def _free_bytes(kinds: Ints, stages: Ints, costs: Sequence[StageCost], mine: slice, memory_bytes: float) -> Floats:
    """[position]: left before each of the slot's spans; what recompute brings back is the work's own unless split."""
    memories, split = [cost.memory for cost in costs], bool((kinds == Kind.W).any())
    back = [memory.recomputed_bytes if split else 0.0 for memory in memories]
    change = {
        Kind.F: [memory.activation_bytes for memory in memories],
        Kind.R: back,
        Kind.B: [-memory.activation_bytes - again for memory, again in zip(memories, back, strict=True)],
        Kind.W: [-memory.weight_grad_bytes for memory in memories],
    }
    change[Kind.F][-1] += back[-1]  # the last stage goes from F to I with all it has
    change[Kind.I] = [gone - kept for gone, kept in zip(change[Kind.B], change[Kind.W], strict=True)]
    held = np.append(0.0, np.cumsum(np.array([change[kind] for kind in Kind])[kinds, stages]))
    static = sum(memory.static_bytes for memory in memories[mine])
    workspace = max(memory.workspace_bytes - again for memory, again in zip(memories[mine], back[mine], strict=True))
    return np.asarray(memory_bytes - static - workspace - held, dtype=np.float64)
