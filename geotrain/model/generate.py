"""Text from a whole model, token by token. Knows ids, not words."""

from collections.abc import Collection, Iterator, Sequence
from random import Random

import torch
from torch import Tensor

from geotrain.errors import InputError, RunError
from geotrain.model.cache import Cache
from geotrain.model.config import Config
from geotrain.model.llama import Part
from geotrain.units import plural


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
    assert part.embeds and part.heads and len(part.layers) == part.config.num_hidden_layers, "not a whole model"
    check(part.config, ids, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p)
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
    cache = Cache(len(ids) + max_new_tokens)
    new = list(ids)
    for number in range(max_new_tokens):
        with torch.inference_mode():
            hidden = part.hidden(torch.tensor([new], device=device), cache)
            logits = part.logits(hidden[:, -1:])[0, 0]
            token = choice(logits, temperature=temperature, top_p=top_p, seed=seed, number=number)
        if token in stop:
            return
        yield token
        new = [token]


def choice(logits: Tensor, *, temperature: float, top_p: float, seed: int | None, number: int) -> int:
    """The token that follows, the text's new one of that number; RunError if there is no likeliest one.

    Seed and number alone decide what is drawn, so it does not matter where, nor what else is drawn there.
    """
    logits = logits.cpu()
    best = logits.max()
    if not best.isfinite():
        raise RunError("the model's logits are not numbers: its training has diverged")
    if temperature == 0:
        return int(logits.argmax())
    # In this precision the shares of a large vocabulary add up, and no temperature above 0 is too small.
    shares = torch.softmax((logits - best).double() / temperature, dim=0)
    if top_p < 1:
        # Tokens below an even share of what is left out are all left out, so only the others need sorting.
        ordered = shares[shares >= (1 - top_p) / len(shares)].sort(descending=True).values
        # A token stays while those ahead of it have less than top_p.
        least = ordered[ordered.cumsum(0) - ordered < top_p][-1]
        shares[shares < least] = 0.0
    upto = shares.cumsum(0)
    drawn = Random(None if seed is None else f"{seed} {number}").random()
    return int(torch.searchsorted(upto / upto[-1], drawn, right=True))


def check(
    config: Config, ids: Sequence[int], *, max_new_tokens: int, temperature: float = 0.0, top_p: float = 1.0
) -> None:
    """InputError if the model cannot go on from `ids` like that."""
    vocab, longest = config.vocab_size, config.max_position_embeddings
    if not ids:
        raise InputError("the prompt is empty and must have at least one token")
    if wrong := [token for token in ids if not 0 <= token < vocab]:
        raise InputError(f"the prompt has token {wrong[0]} and must have tokens below {vocab}, the model's vocab_size")
    if max_new_tokens < 0 or len(ids) + max_new_tokens > longest:
        raise InputError(
            f"max_new_tokens is {max_new_tokens} and must be 0 to {max(0, longest - len(ids))}: the prompt has "
            f"{plural(len(ids), 'token')} and the model's max_position_embeddings is {longest}"
        )
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature is {temperature:g} and must be at least 0 and finite")
    if not 0 < top_p <= 1:
        raise InputError(f"top_p is {top_p:g} and must be above 0 and at most 1")
