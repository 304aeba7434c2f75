"""What passes between the HTTP side and the engine. Knows neither HTTP nor sockets."""

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from geotrain.errors import RunError
from geotrain.serving.model_card import ModelCard

Finish = Literal["stop", "length"]
BLOCK_TOKENS = 64
"""A decoder's memory for keys and values is taken and counted in these."""


def rounded(tokens: int) -> int:
    """Up to whole blocks."""
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next tokens are chosen, and when enough is enough."""

    max_tokens: int
    temperature: float = 1.0
    """0 takes the likeliest."""
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Texts that end the answer and are not part of it."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt of a request; it fits the model together with its `max_tokens`."""

    id: str
    """Made by the server, never given twice."""
    model: str
    tokens: Sequence[int]
    sampling: Sampling
    arrival_s: float = field(default_factory=time.monotonic)
    """On the machine's monotonic clock."""
    tenant: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one more token adds to the answer; the text may lag behind the tokens."""

    text: str
    token: int | None = None
    """None where only held back text is given out."""
    finish: Finish | None = None
    """Set on the last piece."""
    made_s: float = field(default_factory=time.monotonic, compare=False)
    """When the token came, however much later somebody reads it."""


class Busy(RunError):
    """The time to the first token would be too long now, or a quota is used up."""

    def __init__(self, message: str, *, retry_after_s: float, code: str = "rate_limit_exceeded") -> None:
        super().__init__(message)
        self.retry_after_s, self.code = retry_after_s, code


class Draining(RunError):
    """No new requests: the service is about to end."""


class Broken(RunError):
    """The request was lost; the message says how."""


class Engine(Protocol):
    """Prompts in, tokens out."""

    @property
    def models(self) -> Sequence[ModelCard]:
        """What is served, at least one."""

    def ready(self) -> str | None:
        """Why no request can be taken now, or None."""

    def submit(self, prompt: Prompt) -> AsyncGenerator[Piece, None]:
        """The answer as it comes; the last piece has a finish.

        The request begins when the first piece is asked for, and from then on goes on whether or not somebody reads.
        Raises Busy or Draining in place of the first piece, InputError if there never can be one, and Broken in place
        of any. Closing the generator, or cancelling who waits for a piece, ends the request and frees what it holds.
        """
