"""Prefill of a whole model on this device, timed: so many new tokens after so many that are cached."""

import time
from collections.abc import Iterator
from pathlib import Path

import torch

from geotrain.errors import DoesNotFitError, RunError
from geotrain.model import Cache, Config, Part, weights
from geotrain.training.profiling import free_bytes
from geotrain.units import format_bytes


def grid(longest: int) -> list[tuple[int, int]]:
    """New and cached tokens, `longest` together at most: lengths by halves, each after none, a quarter, and so on."""
    lengths = [longest >> halved for halved in range(7) if longest >> halved]
    quarters = dict.fromkeys(longest * quarter // 4 for quarter in range(4))
    return [(new, cached) for cached in quarters for new in lengths if new + cached <= longest]


def load(directory: Path, device: torch.device) -> Part:
    """The model of a Hugging Face directory, in the precision it is served in: bf16, and fp32 on a CPU."""
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = Config.load(directory / "config.json")
    with torch.device("meta"):
        part = Part(config).to(precision)
    needed, free = sum(parameter.nbytes for parameter in part.parameters()), free_bytes(device)
    if needed > free:
        raise DoesNotFitError(
            f"{directory}: the model takes {format_bytes(needed)}, and {format_bytes(free)} are free on this device"
        )
    part.to_empty(device=device)
    weights.load(part, directory)
    return part


class PrefillBench:
    """Holds the model and a cache of `longest` tokens, which is rewound to any length."""

    def __init__(self, part: Part, longest: int) -> None:
        assert 1 <= longest <= part.config.max_position_embeddings, f"prompts of {longest} tokens"
        self._part = part
        drawn = torch.randint(part.config.vocab_size, (1, longest), generator=torch.Generator().manual_seed(0))
        self._ids = drawn.to(next(part.parameters()).device)
        self._cache = Cache(longest)
        self.seconds(longest, 0)

    def seconds(self, new: int, cached: int) -> float:
        """From the tokens to the first one of the answer, once."""
        self._cache.length = cached
        start_s = time.perf_counter()
        try:
            with torch.inference_mode():
                hidden = self._part.hidden(self._ids[:, cached : cached + new], self._cache)
                self._part.logits(hidden[:, -1:]).argmax().item()
        except torch.OutOfMemoryError:
            raise RunError(
                f"{new} new tokens after {cached} cached ones do not fit into this device's memory"
            ) from None
        return time.perf_counter() - start_s

    def measure(self, points: list[tuple[int, int]], repeat: int) -> Iterator[tuple[tuple[int, int], float]]:
        """Every point `repeat` times, in rounds, so that a slow minute is in all of them; the first does not count."""
        for number in range(repeat + 1):
            for point in points:
                seconds = self.seconds(*point)
                if number:
                    yield point, seconds
