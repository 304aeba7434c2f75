"""Which samples a step trains on: a pure function of the step, the same on every layout.

Samples are counted through all epochs; a sample's number says which window it is, and nothing else does. A step takes
the next `global_batch` numbers, however many pipelines share them, so the place to resume at is just the step.
"""

from dataclasses import KW_ONLY, dataclass
from hashlib import blake2b
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from geotrain.errors import InputError
from geotrain.tokens.dataset import Dataset
from geotrain.units import plural

_ROUNDS = 6


@dataclass(frozen=True)
class Batches:
    """Microbatches of shuffled windows; each window once per epoch, each epoch in another order."""

    dataset: Dataset
    _: KW_ONLY
    sequence: int
    microbatch: int
    """Samples per microbatch."""
    microbatches: int
    """Per pipeline and step."""
    pipelines: int
    seed: int

    def __post_init__(self) -> None:
        for name in ("sequence", "microbatch", "microbatches", "pipelines"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)} and must be at least 1")
        if self.windows < 1:
            has = f"{self.dataset.directory}: has {plural(self.dataset.manifest.num_tokens, 'token')}"
            raise InputError(f"{has}, too few for one sequence of {self.sequence} and the token after it")

    @property
    def windows(self) -> int:
        """Samples per epoch."""
        return self.dataset.windows(self.sequence)

    @property
    def global_batch(self) -> int:
        """Samples per step."""
        return self.microbatch * self.microbatches * self.pipelines

    @property
    def fingerprint(self) -> str:
        """Of the data and its order."""
        return f"{self.dataset.fingerprint} seed {self.seed}"

    def batch(self, step: int, pipeline: int, microbatch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of one microbatch, each [microbatch, sequence]."""
        assert step >= 0 and 0 <= pipeline < self.pipelines and 0 <= microbatch < self.microbatches
        first = step * self.global_batch + (microbatch * self.pipelines + pipeline) * self.microbatch
        rows = np.stack([self.sample(number) for number in range(first, first + self.microbatch)])
        return rows[:, :-1].copy(), rows[:, 1:].copy()

    def sample(self, number: int) -> NDArray[np.int64]:
        """The `sequence` + 1 tokens of a sample, counted through all epochs."""
        epoch, place = divmod(number, self.windows)
        return self.dataset.window(shuffled(place, self.windows, key=f"{self.seed} {epoch}"), self.sequence)


def shuffled(place: int, size: int, *, key: str) -> int:
    """Where `place` goes in a permutation of 0 .. size - 1 that the key chooses, without a table of it.

    A Feistel network on the cells of a rectangle (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002): a
    cell's row moves its column and the other way round. The few cells beyond `size` are walked through.
    """
    width = isqrt(size - 1) + 1
    height = -(-size // width)
    while True:
        row, column = divmod(place, width)
        for turn in range(0, _ROUNDS, 2):
            column = (column + _hash(f"{key} {turn} {row}")) % width
            row = (row + _hash(f"{key} {turn + 1} {column}")) % height
        place = row * width + column
        if place < size:
            return place


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
