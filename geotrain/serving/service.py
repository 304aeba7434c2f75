"""A service from its first process to its last: workers and decoder started, times known, requests taken."""

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from geotrain.errors import InputError, RunError
from geotrain.prefill.controller import Controller
from geotrain.prefill.fitting import fit
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.settings import Settings
from geotrain.serving.desk import Desk
from geotrain.serving.engine import LiveEngine
from geotrain.serving.journal import Journal
from geotrain.serving.messages import Measure, Measured, Ready, Role, Windows
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard
from geotrain.serving.reception import Reception
from geotrain.serving.requests import Requests
from geotrain.serving.site import Site
from geotrain.serving.specs import BridgeSpec, DecoderSpec, Spec, WorkerSpec, bridge, decode, work
from geotrain.serving.staff import Staff
from geotrain.serving.steps import Steps
from geotrain.serving.watching import Watch
from geotrain.serving.wire import Frame, Party

DECODER = "decoder"
_POINTS = ((1, 0), (32, 0), (128, 0), (512, 0), (32, 512), (128, 1024), (512, 1024))
"""New and cached tokens at which a worker is measured, as far as the model goes."""
_LEASE_S, _CARRYING_S = 60.0, 10.0


@dataclass(frozen=True, kw_only=True)
class Vllm:
    """A vLLM server that decodes."""

    url: str
    """Of its OpenAI interface."""
    called: str
    """The model's name there."""
    directory: Path
    """Where keys and values are laid down for it, as its connector was told."""
    key: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a service is to run."""

    model: Path
    windows: Path
    """Where training says when its slots are idle."""
    times: Mapping[str, PrefillTime] | None = None
    """By GPU; None: measured."""
    emulated: bool = False
    """Units hold an emulated device for as long as they should take."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Of the workers: each has the GPU that its training process has."""
    decoder_device: str = "cpu"
    vllm: Vllm | None = None
    """Decodes in place of the built-in decoder."""
    decoder_bytes: float = 2e9
    """For keys and values at the decoder."""
    lease_s: float = _LEASE_S
    """Keys and values that are not complete at the decoder after so long are given up."""
    silent_s: float = 30.0
    """A process that says nothing for so long is ended, and started again."""
    start_s: float = 300.0
    """The longest that starting may take."""


def lease_s(settings: Settings) -> float:
    """For keys and values at the decoder: longer than any booking is waited for, and long enough to carry them."""
    return max(_LEASE_S, settings.slo_s + settings.suspension_s + _CARRYING_S)


@asynccontextmanager
async def service(
    site: Site,
    card: ModelCard,
    terms: Terms,
    *,
    metrics: Metrics,
    journal: Journal,
    say: Callable[[str], None],
) -> AsyncIterator["Service"]:
    """Inside the block `started` starts workers and decoder; as soon as they are there, requests are taken."""
    with tempfile.TemporaryDirectory(prefix="geotrain-serve-") as directory:
        running = Service(site, card, terms, Path(directory), metrics, journal, say)
        await running.open()
        try:
            yield running
        finally:
            await running.close()


class Service:
    """Its processes, the requests that they work for, and who receives these."""

    def __init__(
        self,
        site: Site,
        card: ModelCard,
        terms: Terms,
        directory: Path,
        metrics: Metrics,
        journal: Journal,
        say: Callable[[str], None],
    ) -> None:
        self._site, self._card, self._terms, self._directory, self._say = site, card, terms, directory, say
        self._secret = secrets.token_hex(32)
        self._layers = site.layers()
        self._metrics, self._watch = metrics, Watch(metrics, journal)
        self.requests, self.reception = Requests(), Reception(card, metrics)
        self._engine: LiveEngine | None = None
        """Made when all are there, and their times known."""
        self.desk = Desk(self._party("serve", "serve"), hear=self._hear, gone=self._gone, silent_s=terms.silent_s)
        self.staff = Staff(self._ended)
        self._ready: dict[str, Ready] = {}
        self._hopeless: str | None = None
        """Who has ended for reasons that will not change."""
        self._changed = asyncio.Event()
        self._asked: dict[str, Measure] = {}
        """Who is to measure: asked again if another process takes its place."""
        self._measured: dict[str, tuple[float, ...]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the error that the service cannot go on after; never done without one."""

    async def open(self) -> None:
        """Have a place where everybody reports."""
        await self.desk.open(self._address("serve"))

    async def _start(self) -> None:
        terms, settings = self._terms, self._site.scene.settings
        for slot, (first, last) in self._layers.items():
            name = self._site.names[slot]
            spec = WorkerSpec(
                serve=self.desk.address,
                me=self._party("worker", name),
                listen=self._address(name),
                model=terms.model,
                device=terms.device if terms.device == "cpu" else f"cuda:{self._site.local_ranks[slot]}",
                first=first,
                last=last,
                windows=terms.windows,
                guard_s=settings.guard_s,
                quantile=settings.guard_quantile,
                emulated=terms.emulated,
            )
            await self.staff.start(name, work, spec)
        await self._start_decoder()

    async def _start_decoder(self) -> None:
        terms, vllm = self._terms, self._terms.vllm
        common = Spec(
            serve=self.desk.address,
            me=self._party("decoder", DECODER),
            listen=self._address(DECODER),
            model=terms.model,
            device=terms.decoder_device,
        )
        if vllm is None:
            spec = DecoderSpec(**vars(common), limit_bytes=terms.decoder_bytes, lease_s=terms.lease_s)
            await self.staff.start(DECODER, decode, spec)
        else:
            await self.staff.start(DECODER, bridge, BridgeSpec(**vars(common), **vars(vllm), lease_s=terms.lease_s))

    async def close(self) -> None:
        """End everybody."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.desk.close()
        await self.staff.close()

    async def started(self) -> None:
        """Start everybody, until requests are taken; RunError if that cannot be."""
        self._tasks.append(beginning := asyncio.create_task(self._begin()))
        await asyncio.shield(beginning)

    async def _begin(self) -> None:
        await self._start()
        names = {self._site.names[slot] for slot in self._layers} | {DECODER}
        await self._until(
            lambda: names <= self._ready.keys(), lambda: ", ".join(sorted(names - self._ready.keys())[:5])
        )
        times = self._terms.times
        if times is None:
            times = {gpu: await self._measure(gpu) for gpu in sorted(self._site.gpus)}
        self._engine = self._make_engine(times)
        self.reception.open(self._engine)
        self._tasks.append(ticking := asyncio.create_task(self._engine.tick()))
        ticking.add_done_callback(self._ticked)

    def _make_engine(self, times: Mapping[str, PrefillTime]) -> LiveEngine:
        site, settings = self._site, self._site.scene.settings
        forecast = site.scene.forecast(guard_s=settings.guard_s)
        return LiveEngine(
            self._card.name,
            Controller(site.slots, site.kinds(times), forecast, settings),
            Steps(forecast, [slot.row for slot in site.slots]),
            names=site.names,
            present=self._ready,
            chunk_tokens=settings.chunk_tokens,
            requests=self.requests,
            desk=self.desk,
            watch=self._watch,
            metrics=self._metrics,
        )

    async def _measure(self, gpu: str) -> PrefillTime:
        """On the first slot that has such a GPU."""
        name = next(self._site.names[slot] for slot in self._layers if self._site.slots[slot].gpu == gpu)
        most = self._site.model.sequence or 0
        points = tuple(point for point in _POINTS if sum(point) <= most) or ((1, 0),)
        self._asked[name] = Measure(points=points)
        self.desk.send(name, self._asked[name])
        await self._until(lambda: name in self._measured, lambda: f"{name}, which measures how long prefill takes")
        del self._asked[name]
        layers = self._site.model.layers
        found = fit(points, [max(1e-9, unit_s) * layers for unit_s in self._measured[name]])
        self._say(f"prefill on {gpu}: {found.time.seconds(points[-1][0]) * 1e3:.1f} ms for {points[-1][0]} tokens")
        return found.time

    async def _until(self, true: Callable[[], bool], what: Callable[[], str]) -> None:
        end_s = time.monotonic() + self._terms.start_s
        while not true():
            if self._hopeless is not None:
                raise RunError(f"{self._hopeless} cannot start, and has said why")
            self._changed.clear()
            try:
                async with asyncio.timeout(end_s - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                raise RunError(f"not ready after {self._terms.start_s:g} s: {what()}") from None

    def _hear(self, name: str, frame: Frame) -> None:
        match frame.message:
            case Ready() as message:
                self._ready[name] = message
                if self._engine is not None:
                    self._engine.joined(name, message)
                if name in self._asked:
                    self.desk.send(name, self._asked[name])
            case Measured() as message:
                self._measured[name] = message.unit_s
            case Windows() as message if self._engine is None:
                self._watch.watched(name, message)
            case _ if self._engine is not None:
                self._engine.heard(name, frame)
        self._changed.set()

    def _ticked(self, ticking: asyncio.Task[None]) -> None:
        if not ticking.cancelled() and (error := ticking.exception()) is not None:
            self.failed.set_exception(error)

    def _gone(self, name: str) -> None:
        self._ready.pop(name, None)
        if self._engine is None:
            self._watch.gone(name)
        else:
            self._engine.gone(name)
        self.staff.kill(name)

    def _ended(self, name: str, code: int) -> None:
        self._say(f"warning: {name} ended with {code}; another one is started")
        if code == InputError.exit_code:
            self._hopeless = name
            self._changed.set()

    def _party(self, role: Role, name: str) -> Party:
        return Party(role=role, name=name, secret=self._secret)

    def _address(self, name: str) -> str:
        return f"{self._directory / name}.sock"
