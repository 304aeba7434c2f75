"""From the body of a request to tokens that fit the model."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from geotrain.complaints import complaint
from geotrain.hints import hint
from geotrain.serving.contract import Sampling
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.http.schemas import ChatRequest, CompletionRequest
from geotrain.serving.model_card import ModelCard
from geotrain.units import plural

Asked = CompletionRequest | ChatRequest
Tokens = Sequence[int]
_SHORT_BYTES = 16 << 10
_NO_JSON = "the body is not JSON in UTF-8, or is nested too deep, or has too long a number"


@dataclass(frozen=True, kw_only=True)
class Order:
    """A request that was read and can be served."""

    model: str
    user: str
    stream: bool
    counts_usage: bool
    prompts: Sequence[tuple[Tokens, Sampling]]

    @property
    def prompt_tokens(self) -> int:
        return sum(len(tokens) for tokens, _ in self.prompts)


def is_short(body: bytes, kind: type[Asked], cards: Sequence[ModelCard]) -> bool:
    """Whether reading it takes no time worth mentioning."""
    return len(body) <= _SHORT_BYTES and (kind is CompletionRequest or all(card.template.is_plain for card in cards))


def order_of(body: bytes, kind: type[Asked], cards: Sequence[ModelCard]) -> Order:
    """Read a body. May take a while for a long one; refuses what is wrong, or cannot fit the model."""
    asked = _parsed(body, kind)
    card = card_of(cards, asked.model)
    # One after the other: a prompt that does not fit is the last that is tokenized.
    return Order(
        model=card.name,
        user=asked.user or "",
        stream=bool(asked.stream),
        counts_usage=asked.counts_usage,
        prompts=[(tokens, _sampling(asked, tokens, card)) for tokens in _tokens(asked, card)],
    )


def card_of(cards: Sequence[ModelCard], name: str) -> ModelCard:
    """The model of that name."""
    by_name = {card.name: card for card in cards}
    if name not in by_name:
        message = f"the model {name!r} is not served: {hint(name, by_name)}"
        raise Refusal(404, "model_not_found", message, param="model")
    return by_name[name]


def _parsed(body: bytes, kind: type[Asked]) -> Asked:
    try:
        content: Any = json.loads(body)
    except json.JSONDecodeError as error:
        raise Refusal(400, "invalid_json", f"the body is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise Refusal(400, "invalid_json", _NO_JSON) from None
    if not isinstance(content, dict):
        raise Refusal(400, "invalid_json", "the body must be a JSON object")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        where = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
        param = next((part for part in where[:1] if isinstance(part, str)), None)
        raise Refusal(400, "invalid_value", complaint(error, kind), param=param) from None


def _tokens(asked: Asked, card: ModelCard) -> Iterator[Tokens]:
    """One or more prompts; refuses those that cannot fit the model before any is tokenized."""
    if isinstance(asked, ChatRequest):
        _check_length(sum(message.size_chars for message in asked.messages), card, param="messages")
        yield card.chat([message.plain() for message in asked.messages])
        return
    for prompt in asked.prompts:
        if isinstance(prompt, str):
            _check_length(len(prompt), card, param="prompt")
    for prompt in asked.prompts:
        yield card.encode(prompt) if isinstance(prompt, str) else tuple(prompt)


def _check_length(size_chars: int, card: ModelCard, *, param: str) -> None:
    if size_chars > card.max_chars:
        message = (
            f"the prompt has {size_chars} characters and must have at most {card.max_chars}, "
            f"the most that {card.max_model_len} tokens, the length of this model, can hold"
        )
        raise Refusal(400, "context_length_exceeded", message, param=param)


def _sampling(asked: Asked, tokens: Tokens, card: ModelCard) -> Sampling:
    """How the prompt is to be continued; refuses a prompt that is none or leaves no room."""
    param = "messages" if isinstance(asked, ChatRequest) else "prompt"
    if not tokens:
        raise Refusal(400, "invalid_value", "the prompt is empty and must have at least one token", param=param)
    if max(tokens) >= card.vocab_size:
        message = f"the prompt has token {max(tokens)} and must have tokens below {card.vocab_size}"
        raise Refusal(400, "invalid_value", message, param=param)
    room = card.max_model_len - len(tokens)
    wanted = asked.most_tokens or max(1, room)
    if wanted > room:
        message = (
            f"the prompt has {plural(len(tokens), 'token')} and the answer may have {wanted}, "
            f"but together they must be at most {card.max_model_len}, the length of this model"
        )
        raise Refusal(400, "context_length_exceeded", message, param=param)
    return Sampling(
        max_tokens=wanted,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        seed=asked.seed,
        stop=asked.stops,
    )
