"""What keeps training from going as planned: random variation, and spells in which something is slow."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from geotrain.action import Kind
from geotrain.simulation.jitter import STRETCH, Jitter, over_wan, step_factor, variation
from geotrain.simulation.play import STEADY, Board, Variation

_CALM = Jitter(compute=0, wan=0)


@dataclass(frozen=True, kw_only=True)
class Spell:
    """A time in which something is slow; it holds for the whole of every step that starts in it."""

    on: Literal["wan"] | int
    """All transfers over the WAN, or the actions of the slot with this index."""
    start_s: float
    end_s: float
    factor: float
    """How many times as long they take."""


@dataclass(frozen=True, kw_only=True)
class Weather:
    """The luck of every step, known from the jitter's seed and the step's number."""

    jitter: Jitter | None = None
    """Its `samples` say nothing here: there are as many steps as are played."""
    spells: tuple[Spell, ...] = ()

    @property
    def stretch(self) -> float:
        """How many times as long as planned single actions may take."""
        jitter = 1.0 if self.jitter is None else STRETCH
        return jitter * math.prod(max(1.0, spell.factor) for spell in self.spells)

    def factor(self, number: int) -> float:
        """How many times as long everything in that step takes."""
        return 1.0 if self.jitter is None else step_factor(self.jitter, number)

    def variation(self, board: Board, number: int, start_s: float) -> Variation:
        """How single actions and transfers of that step vary, if it starts then."""
        spells = [spell for spell in self.spells if spell.start_s <= start_s < spell.end_s]
        jitter = self.jitter or _CALM
        if not spells and jitter.compute == jitter.wan == 0:
            return STEADY
        varied = variation(board, jitter, np.random.default_rng([jitter.seed, number]))
        for spell in spells:
            _slow_down(varied, board, spell)
        return varied


def _slow_down(varied: Variation, board: Board, spell: Spell) -> None:
    shape = board.problem.shape
    places = (board.wiring.num_pipelines, shape.num_model_stages, shape.num_microbatches)
    if spell.on == "wan":
        transfers = varied.transfers.reshape(2, *places)
        transfers *= np.where(over_wan(board.problem), spell.factor, 1.0)
    else:
        pipeline, stage = divmod(spell.on, shape.num_stages)
        varied.actions.reshape(len(Kind), *places)[:, pipeline, stage :: shape.num_stages] *= spell.factor
