"""Requests from their arrival to their end: who they are, what they hold, and what their clients are told."""

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from geotrain.errors import InputError
from geotrain.prefill.request import Request
from geotrain.serving.contract import Piece, Prompt, rounded
from geotrain.serving.room import Room


@dataclass(eq=False, kw_only=True)
class Live:
    """One that has not ended."""

    prompt: Prompt
    request: Request
    booking: int | None = None
    """That its first token is awaited from."""
    at_decoder: bool = False
    started_s: float = math.nan
    """When its first unit of prefill began."""
    first_s: float = math.nan
    """When its first token came."""
    _said: asyncio.Queue[Piece | Exception] = field(default_factory=asyncio.Queue)

    @property
    def is_answered(self) -> bool:
        """Whether the answer has begun."""
        return not math.isnan(self.first_s)

    @property
    def room_tokens(self) -> int:
        """At the decoder."""
        return rounded(len(self.prompt.tokens) + self.prompt.sampling.max_tokens)

    def say(self, what: Piece | Exception) -> None:
        """To its client, however late that one listens."""
        self._said.put_nowait(what)

    async def next(self) -> Piece:
        """What its client hears next; raised if it is an error."""
        said = await self._said.get()
        if isinstance(said, Exception):
            raise said
        return said


class Requests:
    """All that have not ended, by the server's name for them and by the controller's number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._by_name: dict[str, Live] = {}
        self._by_number: dict[int, Live] = {}
        self._none = asyncio.Event()
        self._none.set()
        self._room = Room()

    @property
    def reserved_tokens(self) -> int:
        """At the decoder, for all of them."""
        return self._room.taken_tokens

    @property
    def under_way(self) -> int:
        """How many."""
        return len(self._by_name)

    async def idle(self, deadline_s: float) -> None:
        """Until none is under way, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._none.wait()

    def add(self, prompt: Prompt, room_tokens: int) -> Live:
        """One more, if a decoder with so much room has enough left for its tenant.

        Busy if it has not now, InputError if it never will.
        """
        request = Request(
            id=next(self._numbers),
            arrival_s=prompt.arrival_s,
            input_tokens=len(prompt.tokens),
            output_tokens=prompt.sampling.max_tokens,
            tenant=prompt.tenant,
            priority=prompt.priority,
        )
        live = Live(prompt=prompt, request=request)
        asked = live.room_tokens
        if asked > room_tokens:
            raise InputError(f"prompt and answer take {asked} tokens at the decoder, and it has room for {room_tokens}")
        self._room.take(prompt.tenant, asked, room_tokens, time.monotonic())
        self._by_name[prompt.id] = self._by_number[request.id] = live
        self._none.clear()
        return live

    def remove(self, live: Live) -> bool:
        """Whether it had not ended before."""
        if self._by_name.pop(live.prompt.id, None) is None:
            return False
        del self._by_number[live.request.id]
        self._room.give_back(live.prompt.tenant, live.room_tokens)
        if not self._by_name:
            self._none.set()
        return True

    def find(self, name: str) -> Live | None:
        """None if it has ended."""
        return self._by_name.get(name)

    def awaited(self, requests: Sequence[Request]) -> list[Live]:
        """Those that still wait for their first token: others of their batch may stream already."""
        lives = (self._by_number.get(request.id) for request in requests)
        return [live for live in lives if live is not None and not live.is_answered]

    def at_decoder(self) -> list[Live]:
        """Those that it knows of."""
        return [live for live in self._by_name.values() if live.at_decoder]
