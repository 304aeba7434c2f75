"""WHAT HAPPENED in a step: every action on a slot and every transfer between slots, with start and end.

A simulated step and a measured one leave the same kind of Timeline. Columns, not objects: a step has many spans.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from geotrain.action import Kind

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Arrays of one length, one row a span."""

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, field.name)) for field in fields(self)}
        assert len(lengths) == 1, f"columns of different lengths: {lengths}"

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))


@dataclass(frozen=True, kw_only=True)
class Actions(_Columns):
    """What the slots did, ordered by start."""

    kind: Ints
    """Values of `Kind`."""
    stage: Ints
    """Counted through all chunks; the slot is stage % num_stages."""
    microbatch: Ints
    pipeline: Ints
    start_s: Floats
    end_s: Floats


@dataclass(frozen=True, kw_only=True)
class Transfers(_Columns):
    """What crossed the boundaries, ordered by start. A boundary that takes no time leaves no row."""

    source: Ints
    """Slot stage that sends, 0 .. num_stages - 1."""
    target: Ints
    """Slot stage that receives."""
    backward: NDArray[np.bool_]
    """A gradient going back, not an activation going on."""
    stage: Ints
    """Stage, counted through all chunks, whose result it is."""
    microbatch: Ints
    pipeline: Ints
    start_s: Floats
    """Its first byte enters the channel."""
    end_s: Floats
    """Its last byte leaves the sender; the channel is free again."""
    arrive_s: Floats
    """The receiver has all of it."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step of one cell."""

    num_stages: int
    """Slot stages: slots along a pipeline, however many stages of the model each of them holds."""
    num_pipelines: int
    """Pipelines with rows of their own, numbered from 0."""
    copies: int
    """Identical pipelines that each row stands for."""
    actions: Actions
    transfers: Transfers
    reduce_start_s: Floats
    """Per slot stage: the data-parallel all-reduce begins, after the stage's last backward in all pipelines."""
    update_start_s: Floats
    """Per slot stage: the all-reduce is over, the optimizer begins."""
    update_end_s: Floats
    """Per slot stage: the optimizer is done."""

    @property
    def step_time_s(self) -> float:
        """From the first forward to the last optimizer's end."""
        return float(self.update_end_s.max())

    @cached_property
    def slot_of_action(self) -> Ints:
        """Index pipeline * num_stages + slot stage of each action."""
        return self.actions.pipeline * self.num_stages + self.actions.stage % self.num_stages

    @cached_property
    def busy_s(self) -> Floats:
        """[pipeline, slot stage]: seconds in which the slot computes, the optimizer included."""
        spans = self.actions.end_s - self.actions.start_s
        busy = np.bincount(self.slot_of_action, weights=spans, minlength=self.num_pipelines * self.num_stages)
        return busy.reshape(self.num_pipelines, self.num_stages) + (self.update_end_s - self.update_start_s)

    def busy_by_kind_s(self) -> dict[Kind, Floats]:
        """Per kind of action: seconds per slot stage, summed over the pipelines that have rows."""
        spans = self.actions.end_s - self.actions.start_s
        stages = self.actions.stage % self.num_stages

        def busy(kind: Kind) -> Floats:
            of_kind = np.where(self.actions.kind == kind, spans, 0.0)
            # numpy's own annotation calls the result whole numbers, which it is not with weights.
            return np.asarray(np.bincount(stages, weights=of_kind, minlength=self.num_stages), dtype=np.float64)

        return {kind: busy(kind) for kind in Kind}

    @cached_property
    def by_slot(self) -> Ints:
        """Rows of the actions slot after slot, in the order each slot did them."""
        # Rows are ordered by start already; small integers sort fastest.
        small = np.uint16 if self.num_pipelines * self.num_stages < 2**16 else np.int64
        return np.argsort(self.slot_of_action.astype(small), kind="stable")

    def peak_in_flight(self) -> Ints:
        """Per slot stage: most microbatches whose forward has begun and whose backward has not ended."""
        change = np.array([1, 0, -1, -1, 0])  # of F, R, B, I, W
        # Every slot begins and ends with nothing in flight, so one running sum serves all.
        in_flight = np.cumsum(change[self.actions.kind[self.by_slot]])
        begins = np.searchsorted(self.slot_of_action[self.by_slot], np.arange(self.num_pipelines * self.num_stages))
        peak = np.maximum.reduceat(in_flight, begins)
        return np.asarray(peak.reshape(self.num_pipelines, self.num_stages).max(axis=0))
