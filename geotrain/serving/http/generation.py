"""The prompts of one request on their way through the engine: counting, and an end for all of them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

from geotrain.serving.contract import Broken, Busy, Draining, Engine, Piece, Prompt
from geotrain.serving.http.access_log import Entry
from geotrain.serving.metrics import Finished, Metrics


class Call:
    """One prompt that the engine was called with, and what comes of it."""

    def __init__(self, engine: Engine, prompt: Prompt, *, entry: Entry, metrics: Metrics) -> None:
        self._stream = engine.submit(prompt)
        self._prompt = prompt
        self._entry = entry
        self._metrics = metrics
        self._tokens = 0
        self._last_s: float | None = None
        """When the last piece was made."""
        self._end: Finished | None = "abort"

    async def next(self) -> Piece:
        """One more piece."""
        try:
            piece = await anext(self._stream, None)
        except (Busy, Draining) as error:
            self._metrics.rejected(self._prompt.model, type(error).__name__.lower())
            self._end = None
            raise
        except Exception:
            self._end = "error"
            raise
        if piece is None:
            self._end = "error"
            raise Broken("the answer broke off")
        self._count(piece)
        return piece

    async def close(self) -> None:
        """The engine need not go on."""
        try:
            await self._stream.aclose()
        finally:
            if self._end is not None:
                self._metrics.finished(
                    self._prompt.model,
                    self._end,
                    e2e_s=(self._last_s or time.monotonic()) - self._entry.arrival_s,
                    prompt_tokens=len(self._prompt.tokens),
                    answer_tokens=self._tokens,
                )

    def _count(self, piece: Piece) -> None:
        if self._last_s is None:
            ttft_s = piece.made_s - self._entry.arrival_s
            self._metrics.observe_ttft(self._prompt.model, ttft_s)
            self._entry.ttft_s = self._entry.ttft_s or ttft_s
        elif piece.token is not None:
            self._metrics.observe_gap(self._prompt.model, piece.made_s - self._last_s)
        self._last_s = piece.made_s
        if piece.token is not None:
            self._tokens += 1
            self._entry.completion_tokens += 1
        if piece.finish is not None:
            self._end = piece.finish


async def generate(calls: Sequence[Call]) -> AsyncGenerator[tuple[int, Piece], None]:
    """Pieces with the number of their call: all of the first, then of the next.

    The first piece comes when every call has its first, so that a request is refused as a whole or not at all. Whatever
    ends this early ends the prompts in the engine.
    """
    async with AsyncExitStack() as stack:
        for call in calls:
            stack.push_async_callback(call.close)
        for index, piece in enumerate(await _together(calls)):
            yield index, piece
            while piece.finish is None:
                piece = await calls[index].next()
                yield index, piece


async def _together(calls: Sequence[Call]) -> list[Piece]:
    """The first piece of each; if one fails, the others are cancelled."""
    if len(calls) == 1:
        return [await calls[0].next()]
    tasks = [asyncio.create_task(call.next()) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
