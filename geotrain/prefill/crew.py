"""Instances that are alike: what they hold at the moment, and what prompts are to them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from geotrain.prefill.fleet import Kind
from geotrain.prefill.prefixes import Prefixes
from geotrain.prefill.request import Request
from geotrain.timeline import Floats, Ints

_MOST_LENGTHS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a prompt, or a batch of them, is to an instance."""

    tokens: int
    """Cached ones too."""
    cached_tokens: int
    unit_s: Floats
    """Of one layer of each chunk."""
    hop_s: float
    total_s: float
    hand_over_s: float


@dataclass(slots=True, eq=False)
class Crew:
    """Instances of one kind."""

    kind: Kind
    chunk_tokens: int
    room: Ints
    """[slot]: keys and values of the model that still fit, in layers of one token; all crews of a model share it."""
    prefixes: Prefixes = field(init=False)
    prompt: Callable[[int, int], Work] = field(init=False)
    """A prompt of that many tokens, of which so many are cached; the latest are remembered, as lengths come again."""

    def __post_init__(self) -> None:
        self.prefixes = Prefixes(len(self.kind))
        self.prompt = lru_cache(_MOST_LENGTHS)(self._prompt)

    @property
    def room_tokens(self) -> Ints:
        """[instance]: tokens whose keys and values still fit; NOTHING where a slot is gone."""
        rooms: Ints = (self.room[self.kind.slots] // self.kind.layers).min(axis=1)
        return rooms

    def left_tokens(self, instance: int) -> int:
        """What `room_tokens` says of one."""
        return int((self.room[self.kind.slots[instance]] // self.kind.layers[instance]).min())

    def _prompt(self, tokens: int, cached: int) -> Work:
        return self._work(self.kind.time.chunks_s(tokens - cached, cached, self.chunk_tokens), tokens, cached)

    def batch(self, requests: tuple[Request, ...]) -> Work:
        """Short prompts together."""
        lengths = [request.input_tokens for request in requests]
        return self._work(np.array([self.kind.time.batch((tokens, 0) for tokens in lengths)]), sum(lengths), 0)

    def _work(self, parts_s: Floats, tokens: int, cached: int) -> Work:
        total_s = float(parts_s.sum())
        return Work(
            tokens=tokens,
            cached_tokens=cached,
            unit_s=parts_s / self.kind.served.shape.layers,
            hop_s=self.kind.hop_s(min(tokens - cached, self.chunk_tokens)),
            total_s=total_s,
            hand_over_s=self.kind.hand_over_s(tokens, total_s),
        )
