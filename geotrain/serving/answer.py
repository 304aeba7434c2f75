"""One answer as it grows: tokens in, text out, and when it is over. Knows no model."""

from collections.abc import Collection, Sequence

from geotrain.serving.contract import Piece, Sampling
from geotrain.serving.stopping import Stopper
from geotrain.tokens.detokenizer import Detokenizer
from geotrain.tokens.tokenizer import Tokenizer


class Answer:
    """What follows on a prompt, until a token of `stop_ids`, a string of the request's or its `max_tokens`."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], sampling: Sampling, *, stop_ids: Collection[int] = ()
    ) -> None:
        self._words = Detokenizer(tokenizer, prompt)
        self._stopper = Stopper(sampling.stop)
        self._stop_ids = stop_ids
        self._left = sampling.max_tokens

    def add(self, token: int) -> Piece:
        """What one more token brings; no more after a piece with a finish."""
        self._left -= 1
        ended = token in self._stop_ids
        text = "" if ended else self._stopper.add(self._words.add(token))
        ended = ended or self._stopper.stopped
        if not ended and self._left:
            return Piece(text=text, token=token)
        text += self._stopper.add(self._words.rest()) + self._stopper.rest()
        return Piece(text=text, token=token, finish="stop" if ended or self._stopper.stopped else "length")
