"""Small parts to decide with: windows, slots and a model, all of them made up."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from geotrain.prefill.booking import Booking
from geotrain.prefill.bubbles import Bubbles
from geotrain.prefill.fleet import Kind, Served, Slot
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.request import Request
from geotrain.workload import Model

GPU = "test"
MODEL = Model(name="tiny", layers=4, hidden=64, heads=2, vocab=100)
TIME = PrefillTime(fixed_s=1e-3, per_token_s=1e-4)
PLENTY = 1e9


def served(shape: Model = MODEL, time: PrefillTime = TIME) -> Served:
    return Served(shape=shape, times={GPU: time})


def slot(row: int = 0, **more: Any) -> Slot:
    given: dict[str, Any] = {"dc": "a", "gpu": GPU, "gpus": 1, "free_bytes": PLENTY, "idle_s": 1.0}
    return Slot(row=row, **given | more)


def cell(*rows: Sequence[tuple[float, float]], step_s: float = 1.0) -> Bubbles:
    """Windows of each row."""
    windows = [window for row in rows for window in row]
    return Bubbles(
        step_time_s=step_s,
        first=np.cumsum([0, *map(len, rows)]),
        position=np.concatenate([np.arange(len(row)) for row in rows]),
        start_s=np.array([start_s for start_s, _ in windows]),
        end_s=np.array([end_s for _, end_s in windows]),
        free_bytes=np.full(len(windows), PLENTY),
    )


PROMPTS = st.lists(st.integers(0, 3), max_size=5).map(
    lambda path: tuple(hash(tuple(path[: length + 1])) for length in range(len(path)))
)
"""Blocks of prompts that begin alike: equal hashes are equal prefixes."""


def ask(number: int, tokens: int = 100, *, at_s: float = 0.0, **more: Any) -> Request:
    return Request(id=number, arrival_s=at_s, input_tokens=tokens, **more)


def held_bytes(kinds: Sequence[Kind], chunk_tokens: int, bookings: Sequence[Booking] = ()) -> dict[int, float]:
    """What prefill takes on each slot: shards of all models, a workspace for each, keys and values."""
    held: dict[int, float] = {}
    for kind in (kind for kind in kinds if not kind.together):
        shape = kind.served.shape
        for slots, layers in zip(kind.slots.tolist(), kind.layers.tolist(), strict=True):
            for q, (place, mine) in enumerate(zip(slots, layers, strict=True)):
                matrices = [0, len(slots) - 1].count(q)
                if shape.tied_embeddings and len(slots) == 1:
                    matrices = 1
                weights = 2 * (mine * shape.layer_parameters + matrices * shape.vocab * shape.hidden)
                held[place] = held.get(place, 0.0) + weights + kind.served.workspace_bytes(chunk_tokens)
    for booking in bookings:
        shape = booking.kind.served.shape
        for place, mine in zip(booking.slots, booking.layers, strict=True):
            # A key and a value of 16 bit for each head and layer.
            held[place] += booking.tokens * mine * 2 * shape.kv_heads * shape.head_dim * 2
    return held
