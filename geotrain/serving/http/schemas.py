"""What clients may ask, in OpenAI's words.

Fields that are not known here are ignored, so that clients may send more than this server does; those that are known to
change an answer in a way that is not done here are refused, because a silent difference is worse than an error.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Strict, Tag, model_validator

from geotrain.files import Number, Whole

MAX_NAME = 256
"""Of a model, or of a user; in characters."""
MAX_PROMPTS = 64
MAX_MESSAGES = 2048
MAX_PARTS = 1024
"""Of a message."""
MAX_STOPS = 16
MAX_TOKENS = 1 << 20
"""Of a prompt that is given as tokens; the model's length is less."""
# A list is bounded and read up to its first mistake: a million mistakes would take minutes to collect.
_Flag = Annotated[bool, Strict()]
# Without a limit pydantic would let halves of surrogate pairs through, which no tokenizer takes.
_Text = Annotated[str, Field(max_length=1 << 30)]
_Stop = Annotated[str, Field(min_length=1, max_length=256)]
_Count = Annotated[Whole, Field(ge=1, le=1 << 31)]
_Token = Annotated[Whole, Field(ge=0, lt=1 << 31)]
_Tokens = Annotated[list[_Token], Field(min_length=1, max_length=MAX_TOKENS, fail_fast=True)]

_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "top_k": (0, -1),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
}
"""Fields that would change the answer, and the values with which they do not."""


def _same(value: object, allowed: object) -> bool:
    """Equal, but 0 is not false."""
    return value == allowed and isinstance(value, bool) == isinstance(allowed, bool)


class _Schema(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True
    )


class StreamOptions(_Schema):
    """How an answer is streamed."""

    include_usage: _Flag = False
    """A last chunk counts the tokens."""


class _Asked(_Schema):
    """What both kinds of request have."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    max_tokens: _Count | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    seed: Annotated[Whole, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    stream: _Flag | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    """Who shares the service, where the API key does not say it."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, content: Any) -> Any:
        if isinstance(content, dict):
            for name, neutral in _REFUSED.items():
                value = content.get(name)
                if value is not None and not any(_same(value, allowed) for allowed in neutral):
                    only = f"can only be {json.dumps(neutral[0])}" if neutral else "is not supported"
                    raise ValueError(f"{name} {only} on this server")
        return content

    @model_validator(mode="after")
    def _streamed(self) -> "_Asked":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def counts_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


def _prompt_kind(prompt: object) -> str:
    """What was meant, by how it begins."""
    if not isinstance(prompt, list):
        return "text"
    first = prompt[0] if prompt else None
    return "texts" if isinstance(first, str) else "lists" if isinstance(first, list) else "tokens"


class CompletionRequest(_Asked):
    """Body of /v1/completions."""

    prompt: Annotated[
        Annotated[_Text, Tag("text")]
        | Annotated[list[_Text], Field(max_length=MAX_PROMPTS, fail_fast=True), Tag("texts")]
        | Annotated[_Tokens, Tag("tokens")]
        | Annotated[list[_Tokens], Field(max_length=MAX_PROMPTS, fail_fast=True), Tag("lists")],
        Discriminator(_prompt_kind),
    ]
    """A text, tokens, or several of either: one choice each."""

    @property
    def prompts(self) -> list[str | list[int]]:
        """One or more, each a text or tokens."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        several: list[Any] = self.prompt
        return [several] if isinstance(several[0], int) else several

    @property
    def most_tokens(self) -> int | None:
        """As OpenAI has it: 16 where nothing is said."""
        return self.max_tokens or 16


class TextPart(_Schema):
    """A part of a message."""

    type: Literal["text"]
    text: _Text


class Message(_Schema):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: _Text | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)]

    @property
    def size_chars(self) -> int:
        """Characters of its text."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        return sum(map(len, parts))

    def plain(self) -> dict[str, str]:
        """As templates take it: developers give the system's instructions, parts are lines."""
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(_Asked):
    """Body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: _Count | None = None
    """The newer name of max_tokens, which it overrules."""

    @property
    def most_tokens(self) -> int | None:
        """None: as many as the model has room for."""
        return self.max_completion_tokens or self.max_tokens
