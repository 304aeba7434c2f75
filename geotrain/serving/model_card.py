"""A served model as its clients see it: name, limits, and text to tokens."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tokenizers

from geotrain.errors import InputError
from geotrain.files import read_text
from geotrain.serving.chat_template import ChatTemplate, check

TOKENIZER, TOKENIZER_CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"

_PLAIN_FIELDS = "name", "created", "max_model_len", "vocab_size", "max_chars"


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """One model and its tokenizer."""

    name: str
    created: int
    """Seconds since 1970."""
    max_model_len: int
    """Most tokens of a prompt and its answer together."""
    vocab_size: int
    tokenizer: tokenizers.Tokenizer
    template: ChatTemplate
    max_chars: int
    """No longer text can have so few tokens that it fits the model."""

    @classmethod
    def load(cls, directory: Path, *, name: str, created: int, max_model_len: int, vocab_size: int) -> Self:
        """With tokenizer.json and, if there are, the chat template and special tokens of a Hugging Face directory."""
        tokenizer = _tokenizer(directory / TOKENIZER)
        vocab = tokenizer.get_vocab()
        if (largest := max(vocab.values(), default=0)) >= vocab_size:
            raise InputError(
                f"{directory / TOKENIZER}: has token {largest}, but the model's vocab_size is {vocab_size}"
            )
        return cls(
            name=name,
            created=created,
            max_model_len=max_model_len,
            vocab_size=vocab_size,
            tokenizer=tokenizer,
            template=_template(directory),
            max_chars=max_model_len * max(map(len, vocab), default=1),
        )

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        """What `dump` made, again."""
        template = ChatTemplate(content["template"], specials=content["specials"])
        tokenizer = tokenizers.Tokenizer.from_str(content["tokenizer"])
        return cls(**{name: content[name] for name in _PLAIN_FIELDS}, tokenizer=tokenizer, template=template)

    def dump(self) -> dict[str, Any]:
        """As plain data, for another process."""
        own = {"tokenizer": self.tokenizer.to_str(), "template": self.template.source}
        return {name: getattr(self, name) for name in _PLAIN_FIELDS} | own | {"specials": self.template.specials}

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a plain prompt, with what the tokenizer puts around a text, as transformers does."""
        return tuple(self.tokenizer.encode_batch_fast([text])[0].ids)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """The tokens of a conversation; the template has put in every special token."""
        text = self.template.render(messages, max_chars=self.max_chars)
        return tuple(self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def _tokenizer(path: Path) -> tokenizers.Tokenizer:
    text = read_text(path)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:
        raise InputError(f"{path}: is not a tokenizer.json: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _template(directory: Path) -> ChatTemplate:
    config = _config(directory / TOKENIZER_CONFIG)
    path = directory / TEMPLATE
    source: Any = read_text(path) if path.exists() else config.get("chat_template")
    if isinstance(source, list):
        try:
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
        except (KeyError, TypeError):
            where = directory / TOKENIZER_CONFIG
            raise InputError(f"{where}: chat_template must have a name and a template in each of its entries") from None
    if source is None:
        return ChatTemplate()
    specials = {name: _content(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    where = path if path.exists() else directory / TOKENIZER_CONFIG
    try:
        check(source)
    except ValueError as error:
        raise InputError(f"{where}: its chat template is not valid: {error}") from None
    return ChatTemplate(source, specials={name: text for name, text in specials.items() if text})


def _config(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        config = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: must be a JSON object")
    return config


def _content(token: Any) -> str | None:
    """A special token is written as text or as an object around it."""
    return token.get("content") if isinstance(token, dict) else token
