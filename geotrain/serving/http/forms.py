"""Answers in OpenAI's words: whole, or as server-sent events. Knows neither engine nor HTTP."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from geotrain.serving.contract import Finish

EVENTS = "text/event-stream"
DONE = b"data: [DONE]\n\n"


class Form(ABC):
    """One answer of one kind."""

    prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, model: str, *, counts_usage: bool) -> None:
        """`counts_usage` is for chunks: whole answers always count."""
        self.id = f"{self.prefix}-{uuid4().hex}"
        self._head = {"id": self.id, "created": int(time.time()), "model": model}
        self._counts_usage = counts_usage
        self._begun: set[int] = set()

    def whole(self, texts: Sequence[tuple[str, Finish]], usage: Mapping[str, int]) -> dict[str, Any]:
        """All choices at once."""
        choices = [_choice(index, self._said(text), finish) for index, (text, finish) in enumerate(texts)]
        return self._head | {"object": self.whole_object, "choices": choices, "usage": usage}

    def chunk(self, index: int, text: str, finish: Finish | None) -> bytes:
        """What a piece adds to a choice."""
        first = index not in self._begun
        self._begun.add(index)
        return self._event([_choice(index, self._added(text, first=first), finish)], None)

    def last(self, usage: Mapping[str, int]) -> bytes:
        """The end of the stream."""
        return (self._event([], usage) if self._counts_usage else b"") + DONE

    def _event(self, choices: list[dict[str, Any]], usage: Mapping[str, int] | None) -> bytes:
        content = self._head | {"object": self.chunk_object, "choices": choices}
        return event(content | {"usage": usage} if self._counts_usage else content)

    @abstractmethod
    def _said(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _added(self, text: str, *, first: bool) -> dict[str, Any]: ...


class TextForm(Form):
    """Of /v1/completions."""

    prefix, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"

    def _said(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _added(self, text: str, *, first: bool) -> dict[str, Any]:
        return {"text": text}


class ChatForm(Form):
    """Of /v1/chat/completions."""

    prefix, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def _said(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def _added(self, text: str, *, first: bool) -> dict[str, Any]:
        return {"delta": ({"role": "assistant"} if first else {}) | {"content": text}}


def event(content: Mapping[str, Any]) -> bytes:
    """As a server-sent event, in ASCII."""
    return b"data: %b\n\n" % json.dumps(content).encode()


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Tokens that were paid for."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def _choice(index: int, content: dict[str, Any], finish: Finish | None) -> dict[str, Any]:
    return {"index": index} | content | {"logprobs": None, "finish_reason": finish}
