"""A schedule is data: either a fixed order of actions per slot, or rules that decide it as the step unfolds.

Knows stages and microbatches; knows no seconds, no GPUs and no network.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from geotrain.action import KIND_MASK, Action, Kind
from geotrain.timeline import Ints


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a schedule may depend on."""

    num_stages: int
    """Slot stages: slots along a pipeline, however many stages of the model each of them holds."""
    num_microbatches: int
    num_chunks: int = 1
    """Stages of the model on each slot: stage c * num_stages + s is chunk c of slot s."""
    recompute: bool = False
    """Backward needs the activations recomputed first."""
    room: tuple[int, ...]
    """Per slot: microbatch chunks that memory, or the plan's cap, lets it hold."""

    @property
    def num_model_stages(self) -> int:
        """Stages of the model, through all chunks."""
        return self.num_stages * self.num_chunks


@dataclass(frozen=True, kw_only=True)
class Orders:
    """One fixed list of actions per slot: for every pipeline the same, or pipeline after pipeline."""

    codes: tuple[Ints, ...]
    """Packed actions (see geotrain.action), slot by slot."""

    @cached_property
    def split(self) -> bool:
        """Whether backward is in two parts."""
        return any((codes & KIND_MASK == Kind.W).any() for codes in self.codes)

    def of_pipelines(self, num_stages: int) -> "list[Orders]":
        """The lists of each pipeline that has its own."""
        starts = range(0, len(self.codes), num_stages)
        return [Orders(codes=self.codes[start : start + num_stages]) for start in starts]

    @classmethod
    def of(cls, slots: Iterable[Iterable[int]]) -> Self:
        """From packed numbers, slot by slot."""
        return cls(codes=tuple(np.array(list(slot), dtype=np.int64) for slot in slots))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From one line of actions per slot, as `str()` gives it."""
        return cls.of([Action.parse(word).code for word in line.split()] for line in text.splitlines() if line.strip())

    def __str__(self) -> str:
        return "\n".join(" ".join(str(action) for action in slot) for slot in self)

    def __iter__(self) -> Iterator[list[Action]]:
        for codes in self.codes:
            yield [Action.unpack(int(code)) for code in codes]


@dataclass(frozen=True, kw_only=True)
class Patience:
    """By how much an action may hold up another that is known to be coming, as a share of its own length."""

    w_before_f: float = math.inf
    w_before_b: float = math.inf
    f_before_b: float = math.inf


RecomputeWhen = Literal["once-sent", "early", "after-forward"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Work-conserving: an idle slot takes the first that is ready of backward, recompute, forward, weight gradient.

    Always the lowest microbatch. A recompute is ready once the gradient is on its way, one ahead of its backward.
    """

    ahead: tuple[int, ...]
    """Per slot: most microbatches whose forward has begun and whose backward has not."""
    split: bool = False
    """Backward in two actions: input gradient (I) at once, weight gradient (W) where it fills a gap."""
    hold: tuple[float, ...] = ()
    """With split, per slot: most microbatches' worth of memory held, counted from F to W."""
    patience: Patience = Patience()
    recompute: RecomputeWhen = "once-sent"
    """R of the next microbatch: once its gradient has set out; also before, if there is no forward to do; or whenever
    there is no forward to do."""

    @property
    def looks_ahead(self) -> bool:
        """Whether what is known to be coming matters."""
        patience = self.patience
        return patience.f_before_b < 1 or (
            (self.split or self.recompute != "once-sent") and min(patience.w_before_f, patience.w_before_b) < 1
        )


Schedule = Orders | Rules
