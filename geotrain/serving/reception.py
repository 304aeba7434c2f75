"""What the HTTP side calls, from the service's first moment to its last."""

import time
from collections.abc import AsyncGenerator, Sequence

from geotrain.serving.contract import Busy, Draining, Piece, Prompt
from geotrain.serving.engine import LiveEngine
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard
from geotrain.serving.outside import Outside
from geotrain.serving.requests import Live
from geotrain.serving.room import SOON_S

_ENDING = "the service is about to end"


class Reception:
    """An `Engine` that takes no requests before a `LiveEngine` is there for them, nor when the service ends."""

    def __init__(self, card: ModelCard, metrics: Metrics) -> None:
        self._card, self._metrics = card, metrics
        self._engine: LiveEngine | None = None
        self._draining = False
        self._outside = Outside()

    def open(self, engine: LiveEngine) -> None:
        """From now on requests are taken."""
        self._engine = engine

    def drain(self) -> None:
        """From now on none are taken."""
        self._draining = True

    @property
    def models(self) -> Sequence[ModelCard]:
        """The one that is served."""
        return [self._card]

    def ready(self) -> str | None:
        """Why no request can be taken now, or None."""
        if self._draining:
            return _ENDING
        return "the workers are not there" if self._engine is None else self._engine.ready()

    async def submit(self, prompt: Prompt) -> AsyncGenerator[Piece, None]:
        """As the contract has it."""
        live = None
        try:
            live = self._let_in(prompt)
            piece = await live.next()
            self._outside.taken(piece.made_s)
            yield piece
            while piece.finish is None:
                piece = await live.next()
                yield piece
        except Busy as busy:
            hoped_rps = 1.0 if self._engine is None else self._engine.capacity_rps(len(prompt.tokens))
            retry_s = self._outside.turned_away(time.monotonic(), busy.retry_after_s, hoped_rps)
            raise Busy(str(busy), retry_after_s=retry_s) from None
        finally:
            if live is not None and self._engine is not None:
                self._engine.leave(live)

    def _let_in(self, prompt: Prompt) -> Live:
        try:
            if self._draining:
                raise Draining(_ENDING)
            if (reason := self.ready()) is not None:
                raise Busy(reason, retry_after_s=SOON_S)
            assert self._engine is not None
            return self._engine.admit(prompt)
        finally:
            self._metrics.observe_admission(self._card.name, time.monotonic() - prompt.arrival_s)
