"""Decoding beside everything else: keys and values come in as they are made, tokens go out step by step.

Calls come on the event loop; the model runs in a thread, and whoever comes or goes does so between two of its steps.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from geotrain.errors import GeotrainError
from geotrain.serving.contract import Broken, Piece, rounded
from geotrain.serving.decoding import Decoder
from geotrain.serving.early import Early
from geotrain.serving.messages import DecodeStart, Error, FirstToken, Kv, Message, Token, Tokens
from geotrain.serving.tensors import unpack

_SWEEP_S = 1.0


class Decoding:
    """The built-in decoder as serve and the workers talk to it."""

    def __init__(self, decoder: Decoder, *, lease_s: float, tell: Callable[[Message], None]) -> None:
        """`lease_s`: keys and values that are not complete after so long are given up."""
        self._decoder, self._lease_s, self._tell = decoder, lease_s, tell
        self._due_s: dict[str, float] = {}
        """Of who waits for keys and values."""
        self._early = Early(lease_s=lease_s)
        self._starting: list[tuple[DecodeStart, Sequence[int]]] = []
        self._first: dict[str, FirstToken] = {}
        """Tokens that have overtaken keys and values."""
        self._joining: list[FirstToken] = []
        self._leaving: list[str] = []
        self._stirred = asyncio.Event()

    async def room_tokens(self) -> int:
        """Whose keys and values it can hold."""
        return self._decoder.room_tokens

    @property
    def held_tokens(self) -> int:
        """For whose keys and values memory is taken, or will be."""
        starting = sum(rounded(len(prompt) + message.sampling.max_tokens) for message, prompt in self._starting)
        return self._decoder.reserved_tokens + starting

    def start(self, message: DecodeStart, prompt: Sequence[int]) -> None:
        """Keep room for a request."""
        self._starting.append((message, prompt))
        self._stirred.set()

    def _start(self, message: DecodeStart, prompt: Sequence[int]) -> None:
        try:
            self._decoder.reserve(message.request, prompt, message.sampling)
        except GeotrainError as error:
            self._tell(Error(request=message.request, message=str(error)))
            return
        self._due_s[message.request] = time.monotonic() + self._lease_s
        for early, payload in self._early.take(message.request):
            if isinstance(early, Kv):
                self.receive(early, payload)
            else:
                self.first(early)

    def receive(self, message: Kv, payload: bytearray) -> None:
        """Keys and values."""
        if message.request not in self._due_s:
            self._early.keep(message, payload)
            return
        try:
            self._decoder.receive(message.request, message.layer, message.position, unpack(message.tensor, payload))
        except GeotrainError as error:
            self._fail(message.request, str(error))
        else:
            self._join(message.request)

    def first(self, message: FirstToken) -> None:
        """The prompt is through."""
        if message.request not in self._due_s:
            self._early.keep(message, bytearray())
            return
        self._first[message.request] = message
        self._join(message.request)

    def _join(self, request: str) -> None:
        """If all is here: layers come from different workers, in any order."""
        if request in self._first and not self._decoder.lacking(request):
            self._joining.append(self._first.pop(request))
            self._stirred.set()

    def cancel(self, requests: Sequence[str]) -> None:
        """Nobody waits for these any more."""
        self._leaving += requests
        for request in requests:
            self._due_s.pop(request, None)
            self._first.pop(request, None)
            self._early.over(request)
        self._stirred.set()

    async def run(self) -> None:
        """Until cancelled."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            while True:
                self._between()
                if self._decoder.running:
                    told = await asyncio.to_thread(self._decoder.step)
                    self._said(told)
                else:
                    await self._stirred.wait()
                self._stirred.clear()
        finally:
            sweeping.cancel()

    def _between(self) -> None:
        starting, self._starting = self._starting, []
        for start in starting:
            self._start(*start)
        leaving, self._leaving = self._leaving, []
        for request in leaving:
            self._due_s.pop(request, None)
            self._decoder.leave(request)
        joining, self._joining = self._joining, []
        for message in joining:
            if self._due_s.pop(message.request, None) is None:
                continue
            try:
                self._said({message.request: self._decoder.join(message.request, message.token)})
            except GeotrainError as error:
                self._fail(message.request, str(error))
            else:
                self._early.over(message.request)

    def _said(self, pieces: dict[str, Piece | Broken]) -> None:
        tokens = []
        for request, piece in pieces.items():
            if isinstance(piece, Broken):
                self._tell(Error(request=request, message=str(piece)))
            else:
                tokens.append(Token(request=request, text=piece.text, token=piece.token, finish=piece.finish))
        if tokens:
            self._tell(Tokens(tokens=tuple(tokens)))

    def _fail(self, request: str, message: str) -> None:
        self.cancel([request])
        self._tell(Error(request=request, message=message))

    async def _sweep(self) -> None:
        """Give up what does not become complete."""
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._lease_s / 2))
            now_s = time.monotonic()
            for request in [request for request, due_s in self._due_s.items() if now_s > due_s]:
                self._fail(request, f"its keys and values did not come within {self._lease_s:g} s")
            self._early.sweep()
