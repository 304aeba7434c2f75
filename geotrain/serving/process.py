"""The processes that `serve` starts: a prefill worker beside each slot, and the decoder.

Each calls serve, listens for its peers, and ends when serve hangs up. Started by fork from one process that has torch
loaded, so that a dozen of them cost little more than one.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeVar

import torch

from geotrain.device import Device
from geotrain.errors import GeotrainError
from geotrain.model import Config
from geotrain.serving.decoder import Decoding
from geotrain.serving.decoding import Decoder
from geotrain.serving.gate import Gate
from geotrain.serving.joining import Listener, connect
from geotrain.serving.messages import (
    HEARTBEAT_S,
    Cancel,
    DecodeStart,
    FirstToken,
    Heartbeat,
    Kv,
    Message,
    Ready,
)
from geotrain.serving.prefilling import Prefilling
from geotrain.serving.shard import Shard, load_part
from geotrain.serving.specs import BridgeSpec, DecoderSpec, Spec, WorkerSpec
from geotrain.serving.tensors import unpack
from geotrain.serving.wire import Buffer, Frame, Party, Wire
from geotrain.tokens.tokenizer import Tokenizer
from geotrain.transport import TransportError

_S = TypeVar("_S", bound=Spec)
_PREFILL_NICE, _DECODE_NICE = 5, 10
"""Where cores are few: first training, and who decides about requests; then who prefills; then who decodes."""
_LAST_S = 5
"""For clearing up when serve has hung up."""


def _plainly(be: Callable[[_S], None]) -> Callable[[_S], None]:
    """Whatever is wrong is said in one sentence."""

    def run(spec: _S) -> None:
        try:
            be(spec)
        except GeotrainError as error:
            sys.stderr.write(f"error: {spec.me.name}: {error}\n")
            sys.exit(error.exit_code)

    return run


@_plainly
def be_worker(spec: WorkerSpec) -> None:
    """Be a prefill worker until serve hangs up."""
    _begin(_PREFILL_NICE)
    shard = Shard.load(spec.model, spec.first, spec.last, device=spec.device)
    gate = Gate(spec.windows, spec.me.name, guard_s=spec.guard_s, quantile=spec.quantile)
    device = Device(spec.windows, spec.me.name) if spec.emulated else None
    asyncio.run(_end_with(_work(spec, shard, gate, device)))


@_plainly
def be_decoder(spec: DecoderSpec) -> None:
    """Be the decoder until serve hangs up."""
    _begin(_DECODE_NICE)
    tokenizer = Tokenizer.read(spec.model / "tokenizer.json")
    part = load_part(spec.model, device=spec.device)
    decoder = Decoder(part, tokenizer, limit_bytes=spec.limit_bytes, stop_ids={*part.config.stop_ids, tokenizer.end_id})
    asyncio.run(_end_with(_decode(spec, lambda tell: Decoding(decoder, lease_s=spec.lease_s, tell=tell))))


@_plainly
def be_bridge(spec: BridgeSpec) -> None:
    """Be the decoder, with a vLLM server behind it, until serve hangs up."""
    from geotrain.serving.vllm.bridge import Bridge

    _begin()
    tokenizer, config = Tokenizer.read(spec.model / "tokenizer.json"), Config.load(spec.model / "config.json")

    def bridge(tell: Callable[[Message], None]) -> Bridge:
        return Bridge(
            spec.directory, spec.url, spec.called, config, tokenizer, lease_s=spec.lease_s, tell=tell, key=spec.key
        )

    asyncio.run(_end_with(_decode(spec, bridge)))


class _Decodes(Protocol):
    @property
    def held_tokens(self) -> int: ...
    async def room_tokens(self) -> int: ...
    def start(self, message: DecodeStart, prompt: list[int]) -> None: ...
    def receive(self, message: Kv, payload: bytearray) -> None: ...
    def first(self, message: FirstToken) -> None: ...
    def cancel(self, requests: Sequence[str]) -> None: ...
    async def run(self) -> None: ...


def _begin(nice: int = 0) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Until it listens to serve, there is no other way to tell it to end.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(nice)
    torch.set_num_threads(1)


async def _end_with(what: Awaitable[None]) -> None:
    """A peer that is gone is no news here: serve says it better."""
    with suppress(TransportError):
        await what


async def _work(spec: WorkerSpec, shard: Shard, gate: Gate, device: Device | None) -> None:
    async with _lines(spec) as lines:
        prefilling = Prefilling(shard, gate, lines.send_from_thread, device=device)
        thread = threading.Thread(target=_or_die, args=(prefilling.run,), name="prefill", daemon=True)

        async def hear(frame: Frame) -> None:
            prefilling.give(*frame)

        async with _peers(spec, hear) as address:
            thread.start()
            lines.send(None, Ready(address=address))
            await lines.listen(hear, lambda: prefilling.held_tokens)


async def _decode(spec: Spec, make: Callable[[Callable[[Message], None]], _Decodes]) -> None:
    async with _lines(spec) as lines:
        decoding = make(lambda message: lines.send(None, message))
        room_tokens = await decoding.room_tokens()

        async def hear(frame: Frame) -> None:
            message, payload = frame
            match message:
                case DecodeStart():
                    decoding.start(message, unpack(message.tensor, payload).tolist())
                case Kv():
                    decoding.receive(message, payload)
                case FirstToken():
                    decoding.first(message)
                case Cancel():
                    decoding.cancel(message.requests)
                case _:
                    pass

        running = asyncio.create_task(decoding.run())
        running.add_done_callback(_died)
        try:
            async with _peers(spec, hear) as address:
                lines.send(None, Ready(address=address, room_tokens=room_tokens))
                await lines.listen(hear, lambda: decoding.held_tokens)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


class Lines:
    """Connections to serve and to peers; what is sent to one goes in order, and to a peer that is gone, nowhere."""

    def __init__(self, serve: Wire, me: Party) -> None:
        self._serve, self._me = serve, me
        self._loop = asyncio.get_running_loop()
        self._boxes: dict[str | None, asyncio.Queue[tuple[Message, Buffer]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, address: str | None, message: Message, payload: Buffer = b"") -> None:
        """To a peer, or to serve."""
        if address not in self._boxes:
            self._boxes[address] = asyncio.Queue()
            self._tasks.append(asyncio.create_task(self._carry(address, self._boxes[address])))
        self._boxes[address].put_nowait((message, payload))

    def send_from_thread(self, address: str | None, message: Message, payload: Buffer) -> None:
        """From any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.send, address, message, payload)

    async def listen(self, hear: Callable[[Frame], Awaitable[None]], held_tokens: Callable[[], int]) -> None:
        """To serve, until it hangs up; that alone ends this process, and soon, whatever it still has to do."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        beating = asyncio.create_task(self._beat(held_tokens))
        try:
            while True:
                frame = await self._serve.receive()
                if not isinstance(frame.message, Heartbeat):
                    await hear(frame)
        finally:
            beating.cancel()
            signal.alarm(_LAST_S)

    async def _beat(self, held_tokens: Callable[[], int]) -> None:
        while True:
            self.send(None, Heartbeat(now_s=time.monotonic(), held_tokens=held_tokens()))
            await asyncio.sleep(HEARTBEAT_S)

    async def _carry(self, address: str | None, box: asyncio.Queue[tuple[Message, Buffer]]) -> None:
        wire: Wire | None = self._serve if address is None else None
        while True:
            message, payload = await box.get()
            # Once more, for a peer may have begun anew since it was last spoken to. If it is gone, serve notices by
            # itself, and knows what that means for whom.
            for _ in range(2):
                try:
                    if wire is None:
                        assert address is not None
                        wire = await connect(address, self._me)
                    await wire.send(message, payload)
                    break
                except TransportError:
                    wire = self._serve if address is None else None

    def close(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        self._serve.abort()


@asynccontextmanager
async def _lines(spec: Spec) -> AsyncIterator[Lines]:
    lines = Lines(await connect(spec.serve, spec.me), spec.me)
    try:
        yield lines
    finally:
        lines.close()


@asynccontextmanager
async def _peers(spec: Spec, hear: Callable[[Frame], Awaitable[None]]) -> AsyncIterator[str]:
    """Listen for them."""

    async def one(wire: Wire) -> None:
        while True:
            await hear(await wire.receive())

    listener = Listener(spec.me, one)
    await listener.open(spec.listen)
    try:
        yield listener.address
    finally:
        await listener.close()


def _or_die(run: Callable[[], None]) -> None:
    """A worker without its thread is none: serve starts another one."""
    try:
        run()
    except GeotrainError as error:
        sys.stderr.write(f"error: {error}\n")
        os._exit(1)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _died(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)
