"""From what a client asked to tokens that fit the model."""

from geotrain.hints import hint
from geotrain.serving.contract import Engine, Sampling
from geotrain.serving.http.refusals import Refusal
from geotrain.serving.http.schemas import ChatRequest, CompletionRequest
from geotrain.serving.model_card import ModelCard
from geotrain.units import plural

Asked = CompletionRequest | ChatRequest
Tokens = tuple[int, ...]


def card_of(engine: Engine, name: str) -> ModelCard:
    """The model of that name."""
    cards = {card.name: card for card in engine.models}
    if name not in cards:
        raise Refusal(404, "model_not_found", f"the model {name!r} is not served: {hint(name, cards)}", param="model")
    return cards[name]


def tokens_of(asked: Asked, card: ModelCard) -> list[Tokens]:
    """One or more prompts. May take a while for long texts; refuses those that cannot fit the model."""
    if isinstance(asked, ChatRequest):
        _check_length(sum(message.size_chars for message in asked.messages), card, param="messages")
        return [card.chat([message.plain() for message in asked.messages])]
    for prompt in asked.prompts:
        if isinstance(prompt, str):
            _check_length(len(prompt), card, param="prompt")
    return [card.encode(prompt) if isinstance(prompt, str) else tuple(prompt) for prompt in asked.prompts]


def _check_length(size_chars: int, card: ModelCard, *, param: str) -> None:
    if size_chars > card.max_chars:
        message = (
            f"the prompt has {size_chars} characters and must have at most {card.max_chars}, "
            f"the most that {card.max_model_len} tokens, the length of this model, can hold"
        )
        raise Refusal(400, "context_length_exceeded", message, param=param)


def sampling_of(asked: Asked, tokens: Tokens, card: ModelCard) -> Sampling:
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
