"""Continuous batching: answers of many requests, one token each at a time; they come and go at any step.

Knows no sockets. A request's tokens do not depend on who else is there: rounding apart, each is computed by itself.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from geotrain.errors import RunError
from geotrain.model import Cache, Config, Part, Row
from geotrain.model.generate import check, choice
from geotrain.serving.answer import Answer
from geotrain.serving.contract import BLOCK_TOKENS, Broken, Piece, Sampling, rounded
from geotrain.tokens.tokenizer import Tokenizer


def token_bytes(config: Config, itemsize: int) -> int:
    """Memory of the keys and values of one token."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * itemsize


class Decoder:
    """A whole model and the requests that it answers, each from `reserve` to its last piece or to `leave`."""

    def __init__(self, part: Part, tokenizer: Tokenizer, *, limit_bytes: float, stop_ids: Collection[int] = ()) -> None:
        """`limit_bytes` for keys and values; a token of `stop_ids` ends a text."""
        config = part.config
        self._part, self._tokenizer, self._stop_ids = part, tokenizer, stop_ids
        self._shape = 2, config.num_key_value_heads, config.head_dim
        self._parameter = next(part.parameters())
        self.room_tokens = (
            int(limit_bytes / token_bytes(config, self._parameter.itemsize)) // BLOCK_TOKENS * BLOCK_TOKENS
        )
        """Tokens whose keys and values it can hold."""
        self._waiting: dict[str, _Sequence] = {}
        self._running: dict[str, _Sequence] = {}

    @property
    def waiting(self) -> int:
        """Requests whose keys and values are not all here."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that get a token at every step."""
        return len(self._running)

    @property
    def reserved_tokens(self) -> int:
        """Of the room, what all requests take when they have grown to their full length."""
        return sum(rounded(one.cache.capacity) for one in (*self._waiting.values(), *self._running.values()))

    @property
    def held_bytes(self) -> int:
        """Of memory, now."""
        held = (*self._waiting.values(), *self._running.values())
        return sum(kept.nbytes for one in held for kept in one.cache.layers.values())

    def __contains__(self, request: str) -> bool:
        return request in self._waiting or request in self._running

    def can_admit(self, tokens: int) -> bool:
        """Whether there is room for a prompt and an answer of that many tokens together."""
        return self.reserved_tokens + rounded(tokens) <= self.room_tokens

    def reserve(self, request: str, prompt: Sequence[int], sampling: Sampling) -> None:
        """Keep room to the end of the answer, so that none has to stop for want of it."""
        check(
            self._part.config,
            prompt,
            max_new_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
        )
        tokens = len(prompt) + sampling.max_tokens
        if request in self:
            raise RunError(f"request {request} is here already")
        if not self.can_admit(tokens):
            reserved = f"{self.reserved_tokens} of {self.room_tokens} are reserved"
            raise RunError(f"request {request}: no room for {tokens} tokens: {reserved}")
        answer = Answer(self._tokenizer, prompt, sampling, stop_ids=self._stop_ids)
        self._waiting[request] = _Sequence(len(prompt), sampling, answer)

    @torch.inference_mode()
    def receive(self, request: str, layer: int, start: int, kv: Tensor) -> None:
        """Keys and values [2, kv_heads, token, head_dim] of the prompt from token `start` on, in order or again."""
        sequence = self._waiting[request]
        there = sequence.received.get(layer, 0)
        if layer not in self._part.layers or (*kv.shape[:2], *kv.shape[3:]) != self._shape:
            raise RunError(f"request {request}: keys and values {list(kv.shape)} of layer {layer} are of another model")
        if start > there or start + kv.shape[2] > sequence.prompt_tokens:
            raise RunError(
                f"request {request}: layer {layer} has keys and values of {there} tokens of "
                f"{sequence.prompt_tokens}, and those of {start} to {start + kv.shape[2]} came"
            )
        sequence.cache.write(layer, start, kv[:, None].to(self._parameter))
        sequence.received[layer] = max(there, start + kv.shape[2])

    def lacking(self, request: str) -> list[int]:
        """Layers whose keys and values are not all here."""
        sequence = self._waiting[request]
        return [layer for layer in self._part.layers if sequence.received.get(layer) != sequence.prompt_tokens]

    def join(self, request: str, first: int) -> Piece:
        """All keys and values are here, and the first token: it takes part from the next step on."""
        lacking = self.lacking(request)
        sequence = self._waiting.pop(request)
        if lacking:
            raise RunError(f"request {request}: keys and values of layer {lacking[0]} are missing")
        sequence.cache.advance(sequence.prompt_tokens)
        piece = sequence.add(first)
        if piece.finish is None:
            self._running[request] = sequence
        return piece

    def leave(self, request: str) -> None:
        """Give up its answer, if it has not ended."""
        self._waiting.pop(request, None)
        self._running.pop(request, None)

    @torch.inference_mode()
    def step(self) -> dict[str, Piece | Broken]:
        """One more token for everybody who runs; whose numbers went wrong ends alone."""
        if not self._running:
            return {}
        sequences = self._running.values()
        row = Row([one.cache for one in sequences], [1] * len(sequences))
        last = torch.tensor([[one.last for one in sequences]], device=self._parameter.device)
        logits = self._part.logits(self._part.hidden(last, row))[0].cpu()
        pieces = {request: one.next(mine) for (request, one), mine in zip(self._running.items(), logits, strict=True)}
        for request, piece in pieces.items():
            if isinstance(piece, Broken) or piece.finish is not None:
                del self._running[request]
        return pieces


class _Sequence:
    """One request."""

    def __init__(self, prompt_tokens: int, sampling: Sampling, answer: Answer) -> None:
        self.prompt_tokens = prompt_tokens
        self.cache = Cache(prompt_tokens + sampling.max_tokens, block=BLOCK_TOKENS)
        self.received: dict[int, int] = {}
        """Tokens of the prompt whose keys and values have come, by layer."""
        self.last = -1
        """Token that the model has not seen yet."""
        self._sampling, self._answer = sampling, answer
        self._tokens = 0

    def next(self, logits: Tensor) -> Piece | Broken:
        sampling = self._sampling
        try:
            token = choice(
                logits,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=sampling.seed,
                number=self._tokens,
            )
        except RunError as error:
            return Broken(str(error))
        return self.add(token)

    def add(self, token: int) -> Piece:
        self.last = token
        self._tokens += 1
        return self._answer.add(token)
