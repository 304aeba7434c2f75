"""The alphabet of a pipeline: what a slot can do, as text (`2F0`: stage 2, forward, microbatch 0) and as a number.

Simulator, checker and trainer all speak it. The packed number is what arrays hold:

    pipeline (14 bit) | stage (16 bit) | microbatch (28 bit) | kind (3 bit)
"""

import re
from enum import IntEnum
from typing import NamedTuple, Self

from geotrain.errors import InputError

STAGE_SHIFT = 31
PIPELINE_SHIFT = 47
MICROBATCH_SHIFT = 3
PIPELINE_MASK = (1 << 14) - 1
STAGE_MASK = (1 << 16) - 1
MICROBATCH_MASK = (1 << 28) - 1
KIND_MASK = (1 << 3) - 1
PIPELINE_FREE = (1 << PIPELINE_SHIFT) - 1
"""What is left of a packed number without its pipeline."""


class Kind(IntEnum):
    """What is done to a microbatch on a stage."""

    F = 0
    """forward"""
    R = 1
    """forward again, to have the activations that were not kept"""
    B = 2
    """backward: both gradients"""
    I = 3  # noqa: E741 - the letter of the alphabet
    """backward, gradient of the input only"""
    W = 4
    """backward, gradient of the weights only"""


_TEXT = re.compile(r"(\d+)([FRBIW])(\d+)")


class Action(NamedTuple):
    """One microbatch, one kind of work, one stage (of the stages of the model, counted through all chunks)."""

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.name}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The action that `2F0` names."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise InputError(f"{text!r} is not an action such as '2F0' (stage 2, forward, microbatch 0)")
        return cls(int(match[1]), Kind[match[2]], int(match[3]))

    @property
    def code(self) -> int:
        """The packed number, of pipeline 0."""
        return pack(self.stage, self.kind, self.microbatch)

    @classmethod
    def unpack(cls, code: int) -> Self:
        """The action of a packed number."""
        return cls(code >> STAGE_SHIFT & STAGE_MASK, Kind(code & KIND_MASK), code >> MICROBATCH_SHIFT & MICROBATCH_MASK)


def pack(stage: int, kind: int, microbatch: int) -> int:
    """The packed number of an action of pipeline 0."""
    return stage << STAGE_SHIFT | microbatch << MICROBATCH_SHIFT | kind
