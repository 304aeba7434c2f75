"""Text from a whole model, token by token. Knows ids, not words."""

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from geotrain.errors import InputError, RunError
from geotrain.model.llama import Cache, Part


def generate(
    part: Part,
    ids: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Collection[int] = (),
) -> Iterator[int]:
    """The tokens that follow `ids`, as they come, until one of `stop`, which is not given.

    Temperature 0 takes the likeliest; otherwise the seed decides among the likeliest that have `top_p` together.
    """
    _check(part, ids, max_new_tokens, temperature, top_p)
    return _tokens(part, ids, max_new_tokens, temperature, top_p, seed, stop)


def _tokens(
    part: Part,
    ids: Sequence[int],
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
    stop: Collection[int],
) -> Iterator[int]:
    device = next(part.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    cache = Cache(len(ids) + max_new_tokens)
    new = list(ids)
    for _ in range(max_new_tokens):
        with torch.inference_mode():
            hidden = part.hidden(torch.tensor([new], device=device), cache)
            logits = part.logits(hidden[:, -1:])[0, 0].float().cpu()
            token = _choice(logits, temperature, top_p, generator)
        if token in stop:
            return
        yield token
        new = [token]


def _choice(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> int:
    if logits.isnan().any():
        raise RunError("the model's logits are not numbers: its training has diverged")
    if temperature == 0:
        return int(logits.argmax())
    shares, tokens = torch.softmax(logits / temperature, dim=0).sort(descending=True)
    # A token stays while those ahead of it have less than top_p.
    shares[shares.cumsum(0) - shares >= top_p] = 0.0
    return int(tokens[torch.multinomial(shares, 1, generator=generator)])


def _check(part: Part, ids: Sequence[int], max_new_tokens: int, temperature: float, top_p: float) -> None:
    assert part.embeds and part.heads and len(part.layers) == part.config.num_hidden_layers, "not a whole model"
    vocab, longest = part.config.vocab_size, part.config.max_position_embeddings
    if not ids:
        raise InputError("the prompt is empty and must have at least one token")
    if wrong := [token for token in ids if not 0 <= token < vocab]:
        raise InputError(f"the prompt has token {wrong[0]} and must have tokens below {vocab}, the model's vocab_size")
    if max_new_tokens < 0 or len(ids) + max_new_tokens > longest:
        raise InputError(
            f"max_new_tokens is {max_new_tokens} and must be 0 to {max(0, longest - len(ids))}: the prompt has "
            f"{len(ids)} tokens and the model's max_position_embeddings is {longest}"
        )
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature is {temperature:g} and must be at least 0 and finite")
    if not 0 < top_p <= 1:
        raise InputError(f"top_p is {top_p:g} and must be above 0 and at most 1")
