"""Where workers and the decoder report: their connections, what is said to each, and who has fallen silent."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from geotrain.serving.joining import Listener
from geotrain.serving.messages import HEARTBEAT_S, Heartbeat, Message
from geotrain.serving.wire import Buffer, Frame, Party, Wire
from geotrain.transport import TransportError

Outbox = asyncio.Queue[tuple[Message, Buffer]]


class Desk:
    """One connection for each name; `hear` gets what it says, `gone` is called when it is lost."""

    def __init__(
        self, me: Party, *, hear: Callable[[str, Frame], None], gone: Callable[[str], None], silent_s: float
    ) -> None:
        """`silent_s`: who says nothing for so long is taken for lost."""
        self._hear, self._gone, self._silent_s = hear, gone, silent_s
        self._listener = Listener(me, self._serve)
        self._boxes: dict[str, tuple[Outbox, Wire]] = {}
        self.held_tokens: dict[str, int] = {}
        """Of who is there, for whose keys and values it takes memory."""

    @property
    def address(self) -> str:
        """Where it is."""
        return self._listener.address

    async def open(self, address: str) -> None:
        """Listen there."""
        await self._listener.open(address)

    async def close(self) -> None:
        """Hang up on everybody."""
        await self._listener.close()

    def send(self, name: str, message: Message, payload: Buffer = b"") -> None:
        """In order; nothing happens if that one is not there."""
        if name in self._boxes:
            self._boxes[name][0].put_nowait((message, payload))

    def hang_up(self, name: str) -> None:
        """On one."""
        if name in self._boxes:
            self._boxes[name][1].abort()

    async def _serve(self, wire: Wire) -> None:
        name, box = wire.peer.name, Outbox()
        self.hang_up(name)
        self._boxes[name] = mine = box, wire
        tasks = [asyncio.create_task(self._carry(wire, box)), asyncio.create_task(self._beat(box))]
        try:
            while True:
                frame = await wire.receive(deadline_s=self._silent_s)
                if isinstance(frame.message, Heartbeat):
                    self.held_tokens[name] = frame.message.held_tokens
                else:
                    self._hear(name, frame)
        finally:
            for task in tasks:
                task.cancel()
            if self._boxes.get(name) == mine:
                del self._boxes[name]
                self.held_tokens.pop(name, None)
                self._gone(name)

    async def _carry(self, wire: Wire, box: Outbox) -> None:
        with suppress(TransportError):
            while True:
                await wire.send(*await box.get())

    async def _beat(self, box: Outbox) -> None:
        while True:
            box.put_nowait((Heartbeat(now_s=time.monotonic()), b""))
            await asyncio.sleep(HEARTBEAT_S)
