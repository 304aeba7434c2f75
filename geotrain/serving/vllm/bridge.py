"""Speaks for a vLLM server where a decoder is expected: keys and values come in, its tokens go out.

Knows no wires between our own processes. All is called on one event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import torch

from geotrain.errors import RunError
from geotrain.model import Config
from geotrain.serving.answer import Answer
from geotrain.serving.contract import Sampling
from geotrain.serving.early import Early
from geotrain.serving.messages import DecodeStart, Error, FirstToken, Kv, Message, Token, Tokens
from geotrain.serving.tensors import unpack
from geotrain.serving.vllm.handover import Form, Handover, Shelf
from geotrain.serving.vllm.server import Server, transfer_config
from geotrain.tokens.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


class Bridge:
    """A request is here from `start` to its last token, an error or `cancel`; its file until vLLM has loaded it."""

    def __init__(
        self,
        directory: Path,
        url: str,
        model: str,
        config: Config,
        tokenizer: Tokenizer,
        *,
        lease_s: float,
        tell: Callable[[Message], None],
        key: str = "",
    ) -> None:
        """`model` is its name at `url`, `directory` the connector's.

        `lease_s`: keys and values that are not complete after so long are given up, and so is a vLLM that is silent.
        """
        self._directory, self._config, self._tokenizer = directory, config, tokenizer
        self._lease_s, self._tell = lease_s, tell
        self._stop_ids = {*config.stop_ids, tokenizer.end_id}
        self._shelf = Shelf(directory, lease_s=lease_s)
        self._server = Server(url, model, stop_ids=self._stop_ids, silence_s=lease_s, key=key)
        self._requests: dict[str, _Request] = {}
        self._early = Early(lease_s=lease_s)
        self._asking: set[asyncio.Task[None]] = set()
        self._has_warned = False

    async def room_tokens(self) -> int:
        """Whose keys and values vLLM can hold; to be asked first: RunError if it is not there, or has another model."""
        return await self._server.room_tokens()

    @property
    def held_tokens(self) -> int:
        """Of prompts that are here."""
        return sum(len(request.prompt) for request in self._requests.values())

    def start(self, message: DecodeStart, prompt: list[int]) -> None:
        """Await its keys and values, or take those that were faster."""
        answer = Answer(self._tokenizer, prompt, message.sampling, stop_ids=self._stop_ids)
        self._requests[message.request] = _Request(
            prompt=prompt, sampling=message.sampling, answer=answer, due_s=time.monotonic() + self._lease_s
        )
        for early, payload in self._early.take(message.request):
            if isinstance(early, Kv):
                self.receive(early, payload)
            else:
                self.first(early)

    def receive(self, message: Kv, payload: bytearray) -> None:
        """Some tokens of one layer."""
        request = self._requests.get(message.request)
        if request is None:
            self._early.keep(message, payload)
        elif not request.is_answered:
            try:
                kv = unpack(message.tensor, payload)
                self._handover(request, kv.dtype).write(message.layer, message.position, kv)
            except RunError as error:
                self._fail(message.request, error)
            else:
                self._answer(message.request, request)

    def first(self, message: FirstToken) -> None:
        """The token that the prefill has chosen."""
        request = self._requests.get(message.request)
        if request is None:
            self._early.keep(message, bytearray())
        elif request.first is None:
            request.first = message.token
            self._answer(message.request, request)

    def cancel(self, requests: Sequence[str]) -> None:
        """Nobody waits for them: vLLM stops, nothing is left."""
        for name in requests:
            self._end(name)

    async def run(self) -> None:
        """Until cancelled: leases are renewed, and what has outlived its own is dropped."""
        try:
            while True:
                await asyncio.sleep(self._lease_s / 4)
                self._sweep()
        finally:
            self.cancel(list(self._requests))
            await asyncio.gather(*self._asking, return_exceptions=True)
            await self._server.close()
            self._shelf.close()

    def _sweep(self) -> None:
        now_s = time.monotonic()
        for name, request in list(self._requests.items()):
            if request.handover is not None:
                request.handover.renew()
            if not request.is_answered and now_s > request.due_s:
                self._fail(name, RunError(f"its keys and values did not come within {self._lease_s:g} s"))
        self._early.sweep()

    def _handover(self, request: "_Request", dtype: torch.dtype) -> Handover:
        if request.handover is None:
            form = Form(
                layers=self._config.num_hidden_layers,
                kv_heads=self._config.num_key_value_heads,
                tokens=len(request.prompt),
                head_dim=self._config.head_dim,
                dtype=dtype,
            )
            request.handover = self._shelf.place(form, request.prompt)
        return request.handover

    def _answer(self, name: str, request: "_Request") -> None:
        """If all is there, the first token is told, and vLLM asked for the others."""
        handover, first = request.handover, request.first
        if request.is_answered or first is None or handover is None or not handover.is_complete:
            return
        request.is_answered = True
        if not self._add(name, request, first):
            request.task = asyncio.create_task(self._ask(name, request, first, handover))
            self._asking.add(request.task)
            request.task.add_done_callback(self._asking.discard)

    async def _ask(self, name: str, request: "_Request", first: int, handover: Handover) -> None:
        number = 1
        try:
            handover.seal()
            answer = self._server.tokens(
                [*request.prompt, first],
                request.sampling,
                max_tokens=request.sampling.max_tokens - 1,
                handover=handover.name,
            )
            async with aclosing(answer) as tokens:
                async for token in tokens:
                    self._loaded(handover)
                    number += 1
                    if self._add(name, request, token):
                        return
            raise RunError(f"vLLM has ended the answer after {number} of {request.sampling.max_tokens} tokens")
        except RunError as error:
            self._fail(name, error)
        except Exception as error:
            # Of whatever else goes wrong only the kind is told: the words might show the answer.
            self._fail(name, RunError(f"vLLM's answer cannot be passed on: {type(error).__name__}"))

    def _loaded(self, handover: Handover) -> None:
        if not handover.is_read and not self._has_warned:
            self._has_warned = True
            config = transfer_config(self._directory)
            _log.warning("vLLM computes prompts again; start it with --kv-transfer-config '%s'", config)
        handover.close()

    def _add(self, name: str, request: "_Request", token: int) -> bool:
        """Tell one more token; whether it was the last."""
        piece = request.answer.add(token)
        if piece.finish is not None:
            self._end(name)
        self._tell(Tokens(tokens=(Token(request=name, text=piece.text, token=piece.token, finish=piece.finish),)))
        return piece.finish is not None

    def _fail(self, name: str, error: RunError) -> None:
        self._end(name)
        self._tell(Error(request=name, message=str(error)))

    def _end(self, name: str) -> None:
        self._early.over(name)
        request = self._requests.pop(name, None)
        if request is not None and request.handover is not None:
            request.handover.close()
        if request is not None and request.task not in (None, asyncio.current_task()):
            request.task.cancel()


@dataclass(kw_only=True, eq=False)
class _Request:
    prompt: list[int]
    sampling: Sampling
    answer: Answer
    due_s: float
    """By when all must have come."""
    handover: Handover | None = None
    first: int | None = None
    is_answered: bool = False
    """Whether the answer has begun."""
    task: asyncio.Task[None] | None = None
