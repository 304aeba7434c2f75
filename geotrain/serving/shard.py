"""The layers of a served model that live on one slot, and the keys and values of the prompts on their way through it.

Knows no sockets, windows or clocks: whoever runs a pass may stop after any layer, for as long as he likes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from geotrain.errors import InputError, RunError
from geotrain.model import Cache, Config, Part, Row, weights


def load_part(directory: Path, first: int = 0, last: int | None = None, *, device: str = "cpu") -> Part:
    """Layers of a Hugging Face directory, in the precision in which they are served: bf16, and fp32 on a CPU."""
    config = Config.load(directory / "config.json")
    total = config.num_hidden_layers
    last = total if last is None else last
    if not 0 <= first < last <= total:
        raise InputError(f"{directory}: has layers 0 to {total}, not {first} to {last}")
    with torch.device("meta"):
        part = Part(config, first=first, last=last, embeds=first == 0, heads=last == total)
    part.to(torch.float32 if device == "cpu" else torch.bfloat16).to_empty(device=device)
    weights.load(part, directory)
    return part.requires_grad_(False)


def settle(device: torch.device) -> None:
    """Until all that was asked of it is done: a GPU only takes note, and training beside it would wait."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Some tokens of a prompt."""

    request: str
    x: Tensor
    """Token ids [token] for the model's first layer, hidden states [token, hidden] for others."""
    position: int
    """Of the first token in its prompt."""
    is_last: bool = True
    """Whether the prompt ends with it."""


class Pass(Iterator[int]):
    """Chunks of different requests on their way through layers: each `next` is one of them and gives its number.

    It counts when all layers are done; given up before, it may be run again.
    """

    def __init__(self, part: Part, layers: range, chunks: Sequence[Chunk], caches: Sequence[Cache]) -> None:
        self._part, self._layers, self._chunks = part, layers, chunks
        self._device = next(part.parameters()).device
        self._row = Row(caches, [len(chunk.x) for chunk in chunks])
        self._steps = self._run()
        self.out: list[Tensor | None] = []
        """In the end, of each chunk: hidden states [token, hidden] for the next layer, or from the model's last one
        the logits [vocab] of what follows the prompt, if the chunk ends it."""

    def __next__(self) -> int:
        with torch.inference_mode():
            layer = next(self._steps)
        settle(self._device)
        return layer

    def _run(self) -> Iterator[int]:
        x = torch.cat([chunk.x for chunk in self._chunks])[None].to(self._device)
        if self._layers.start == 0:
            x = self._part.embed(x)
        for layer, out in zip(self._layers, self._part.layerwise(x, self._row, self._layers), strict=False):
            if layer == self._layers[-1]:
                self._row.advance(out.shape[1])
                self.out = self._ends(out[0])
            yield layer

    def _ends(self, hidden: Tensor) -> list[Tensor | None]:
        each = torch.split(hidden, [len(chunk.x) for chunk in self._chunks])
        if self._layers.stop < self._part.config.num_hidden_layers:
            return list(each)
        ends = [x[-1] for x, chunk in zip(each, self._chunks, strict=True) if chunk.is_last]
        logits = iter(self._part.logits(torch.stack(ends))) if ends else iter(())
        return [next(logits) if chunk.is_last else None for chunk in self._chunks]


class Shard:
    """One slot's layers; requests are held from `start` to `release`."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._caches: dict[str, Cache] = {}

    @classmethod
    def load(cls, directory: Path, first: int = 0, last: int | None = None, *, device: str = "cpu") -> Self:
        """Layers `first` to before `last` of a Hugging Face directory."""
        return cls(load_part(directory, first, last, device=device))

    @property
    def layers(self) -> range:
        """By their numbers in the whole model."""
        return self.part.layers

    @property
    def tokens_held(self) -> int:
        """Tokens of all prompts that memory is taken for."""
        return sum(cache.capacity for cache in tuple(self._caches.values()))

    def __contains__(self, request: str) -> bool:
        return request in self._caches

    def start(self, request: str, tokens: int) -> None:
        """Make room for a prompt."""
        if request in self._caches:
            raise RunError(f"request {request} has been started already")
        self._caches[request] = Cache(tokens)

    def run(self, chunks: Sequence[Chunk], layers: range | None = None) -> Pass:
        """The next chunk of each of these requests, together, through some of the layers; nothing is computed yet."""
        layers = self.layers if layers is None else layers
        if not layers or layers.start < self.layers.start or layers.stop > self.layers.stop:
            raise RunError(
                f"layers {self.layers.start} to {self.layers.stop} are here, not {layers.start} to {layers.stop}"
            )
        caches = [self._cache(chunk.request) for chunk in chunks]
        for chunk, cache in zip(chunks, caches, strict=True):
            if chunk.position != cache.length or chunk.position + len(chunk.x) > cache.capacity:
                raise RunError(
                    f"request {chunk.request}: a chunk has tokens {chunk.position} to "
                    f"{chunk.position + len(chunk.x)}, and {cache.length} to {cache.capacity} are awaited"
                )
        return Pass(self.part, layers, chunks, caches)

    def kv(self, request: str, layer: int, start: int, end: int) -> Tensor:
        """Keys and values [2, kv_heads, token, head_dim] of tokens that the layer has seen; a view."""
        return self._cache(request).layers[layer][:, 0, :, start:end]

    def release(self, request: str) -> None:
        """Forget its keys and values; nothing happens if they are gone."""
        self._caches.pop(request, None)

    def _cache(self, request: str) -> Cache:
        if request not in self._caches:
            raise RunError(f"request {request} has not been started, or is over")
        return self._caches[request]
