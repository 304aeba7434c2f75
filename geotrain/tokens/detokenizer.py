"""The text of tokens as they come, in whole characters."""

from collections.abc import Sequence
from itertools import takewhile

from geotrain.tokens.tokenizer import Tokenizer

_HOLE = "\ufffd"
"""What a tokenizer puts for bytes that are no character, or not yet: one for all or one each, by its kind."""
_MOST_HELD = 3
"""A character of four bytes lacks one."""
_CONTEXT_TOKENS = 8
_MOST_TOKENS = 32


class Detokenizer:
    """Text is new against what `before` and the tokens so far say: how a token reads depends on those ahead of it."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._told = ""
        context = list(before[-_CONTEXT_TOKENS:])
        # Cut in the middle of a character, the context would spoil what follows.
        while len(before) > len(context) > 0 and tokenizer.decode(context).startswith(_HOLE):
            del context[0]
        self._cut(context, held=0)

    def add(self, token: int) -> str:
        """What can be told with one more token; bytes that may yet become a character are held back."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        held = min(len(text) - len(text.rstrip(_HOLE)), _MOST_HELD)
        whole = text[: len(text) - held]
        if held and len(self._tokens) < _MOST_TOKENS:
            # Half a character may spoil the one ahead of it, for the moment.
            return self._news(whole) if whole.startswith(self._told) else ""
        new = self._news(whole)
        self._cut(self._tokens[max(self._context, len(self._tokens) - _CONTEXT_TOKENS) :], held)
        return new

    def rest(self) -> str:
        """What is held back at the end of the text: half a character shows as a replacement for it."""
        return self._news(self._tokenizer.decode(self._tokens))

    def _news(self, text: str) -> str:
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._told, text, strict=False)))
        new = text[same:]
        if new:
            self._told = text
        return new

    def _cut(self, tokens: list[int], held: int) -> None:
        """Go on with these alone: long texts take no longer than short ones."""
        self._tokens = tokens
        self._context = len(tokens)
        text = self._tokenizer.decode(tokens)
        self._told = text[: len(text) - held]
