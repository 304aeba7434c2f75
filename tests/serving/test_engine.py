"""Whatever processes and clients do, and in whatever order, every request ends, and nothing is kept for it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.prefill.controller import Controller
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.settings import Settings
from geotrain.serving.contract import Broken, Busy, Finish, Piece
from geotrain.serving.desk import Desk
from geotrain.serving.engine import LiveEngine
from geotrain.serving.journal import Journal
from geotrain.serving.messages import (
    Cancel,
    DecodeStart,
    Error,
    Forget,
    Message,
    Ready,
    Report,
    Task,
    Token,
    Tokens,
    Windows,
)
from geotrain.serving.metrics import Metrics
from geotrain.serving.model_card import ModelCard
from geotrain.serving.reception import Reception
from geotrain.serving.requests import Requests
from geotrain.serving.site import Site, site
from geotrain.serving.steps import Steps
from geotrain.serving.watching import Watch
from geotrain.serving.wire import Buffer, Frame
from tests.serving import live
from tests.serving.prefilling import SHAPE
from tests.serving.prefilling import prompt as ids_of

DECODER = "decoder"
ROOM_TOKENS = 4096
TIME = PrefillTime(fixed_s=0.5)


class Processes(Desk):
    """Those of a service as far as the engine sees them: what they were told, and what they still hold."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[int, set[str]]] = {}
        self.decoding: dict[str, set[str]] = {}

    def send(self, name: str, message: Message, payload: Buffer = b"") -> None:
        match message:
            case Task():
                self.tasks[name].setdefault(message.booking, set()).update(part.request for part in message.slices)
            case Forget() if name in self.tasks:
                for booking in message.bookings:
                    self.tasks[name].pop(booking, None)
            case DecodeStart():
                assert message.request not in self.decoding[name]
                self.decoding[name].add(message.request)
            case Cancel() if name in self.decoding:
                self.decoding[name].difference_update(message.requests)
            case _:
                pass


class World:
    """An engine, and those who disturb it."""

    def __init__(self, directory: Path, here: Site) -> None:
        card = ModelCard.load(directory, name=live.NAME, created=0, max_model_len=2100, vocab_size=SHAPE.vocab_size)
        self.names, self.processes = here.names, Processes()
        decided = here.scene.settings
        self.metrics, self.requests = Metrics(), Requests()
        forecast = here.scene.forecast(guard_s=decided.guard_s)
        self.controller = Controller(here.slots, here.kinds(dict.fromkeys(here.gpus, TIME)), forecast, decided)
        self.engine = LiveEngine(
            live.NAME,
            self.controller,
            Steps(forecast, [slot.row for slot in here.slots]),
            names=here.names,
            present={name: self.begin(name) for name in (*here.names, DECODER)},
            chunk_tokens=decided.chunk_tokens,
            requests=self.requests,
            desk=self.processes,
            watch=Watch(self.metrics, Journal(None)),
            metrics=self.metrics,
        )
        self.reception = Reception(card, self.metrics)
        self.reception.open(self.engine)
        self.clients: list[asyncio.Task[str]] = []

    def begin(self, name: str) -> Ready:
        if name == DECODER:
            self.processes.decoding[name] = set()
        else:
            self.processes.tasks[name] = {}
        return Ready(address=f"/{name}", room_tokens=ROOM_TOKENS)

    def join(self, name: str) -> None:
        self.engine.joined(name, self.begin(name))

    def leave(self, name: str) -> None:
        self.processes.tasks.pop(name, None)
        self.processes.decoding.pop(name, None)
        self.engine.gone(name)

    def hear(self, name: str, message: Message) -> None:
        self.engine.heard(name, Frame(message, bytearray()))

    async def client(self, number: int, length: int) -> str:
        """How it ended."""
        asked = live.prompt(ids_of(length), name=f"r{number}")
        last: Piece | None = None
        try:
            async for piece in self.reception.submit(asked):
                assert last is None or last.finish is None
                last = piece
        except (Busy, Broken, InputError) as error:
            return type(error).__name__
        assert last is not None and last.finish is not None
        return "answered"

    def do(self, what: str, number: int) -> None:
        names = [*self.names, DECODER]
        waiting = sorted(one for held in self.processes.decoding.values() for one in held)
        match what:
            case "arrive":
                self.clients.append(asyncio.create_task(self.client(len(self.clients), 1 + number * 30)))
            case "client gone" if self.clients:
                self.clients[number % len(self.clients)].cancel()
            case "lost":
                self.leave(names[number % len(names)])
            case "back":
                self.join(names[number % len(names)])
            case "token" | "last token" | "error" if waiting:
                request = waiting[number % len(waiting)]
                finish: Finish | None = "stop" if what == "last token" else None
                if what != "token":
                    self.processes.decoding[DECODER].discard(request)
                said = Tokens(tokens=(Token(request=request, text="a", token=1, finish=finish),))
                self.hear(DECODER, Error(request=request, message="no") if what == "error" else said)
            case "started":
                for name, bookings in self.processes.tasks.items():
                    for booking in list(bookings):
                        self.hear(name, Report(booking=booking, place=0, chunk=0, what="started", now_s=1.0))
            case "trains" | "does not train":
                told = Windows(trains=what == "trains", offered_s=0, used_s=0, overruns=0, overrun_s=0, guard_s=0)
                if (name := names[number % len(self.names)]) in self.processes.tasks:
                    self.hear(name, told)
            case _:
                pass

    async def end(self) -> None:
        """All processes are there in the end, and do what they should."""
        for name in (*self.names, DECODER):
            if name not in {*self.processes.tasks, *self.processes.decoding}:
                self.join(name)
        while self.requests.under_way:
            self.do("last token", 0)
            await asyncio.sleep(0.001)


EVENTS = st.tuples(
    st.sampled_from(
        [
            *["arrive"] * 4,
            "client gone",
            "lost",
            "back",
            "token",
            "last token",
            "error",
            "started",
            "trains",
            "does not train",
            "pause",
        ]
    ),
    st.integers(0, 50),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return live.model(tmp_path_factory.mktemp("engine") / live.NAME)


@pytest.mark.parametrize(("degree", "slo_s"), [(1, 1.0), (2, 3.0), (2, 60.0)])
def test_every_request_ends_and_leaves_nothing(directory: Path, degree: int, slo_s: float):
    decided = Settings(slo_s=slo_s, degree=degree, chunk_tokens=512, batch_tokens=512, guard_s=0.001)
    here = site(live.small_plan(), SHAPE.shape(live.NAME), decided, dc=None)

    async def story(events: Sequence[tuple[str, int]]) -> None:
        world = World(directory, here)
        for what, number in events:
            world.do(what, number)
            await asyncio.sleep(0 if what != "pause" else number * 1e-4)
        await asyncio.sleep(0)
        await world.end()
        for client in world.clients:
            with suppress(asyncio.CancelledError):
                assert await client in ("answered", "Busy", "Broken")
        assert (world.requests.under_way, world.requests.reserved_tokens, world.requests._by_number) == (0, 0, {})
        assert world.engine._bookings._booked == {}
        assert world.processes.decoding == {DECODER: set()}
        assert world.processes.tasks == {name: {} for name in world.names}
        assert (world.controller.waiting, world.controller._promised_s) == (0, {})
        assert world.controller._ledger._open == {}

    @settings(max_examples=60)
    @given(st.lists(EVENTS, max_size=40))
    def always(events: list[tuple[str, int]]) -> None:
        asyncio.run(story(events))

    always()


def test_what_can_never_be_answered_is_the_clients_mistake(directory: Path):
    decided = Settings(slo_s=60.0, degree=2)
    here = site(live.small_plan(), SHAPE.shape(live.NAME), decided, dc=None)

    async def refusal(world: World, length: int, max_tokens: int) -> str:
        with pytest.raises(InputError) as raised:
            await anext(world.reception.submit(live.prompt(ids_of(length), max_tokens=max_tokens)))
        assert (world.requests.under_way, world.requests.reserved_tokens) == (0, 0)
        return str(raised.value)

    async def story() -> None:
        world = World(directory, here)
        assert await refusal(world, 100, 4000) == (
            "prompt and answer take 4160 tokens at the decoder, and it has room for 4096"
        )
        world.controller._ledger._largest[live.NAME] = 99
        assert await refusal(world, 100, 1) == "a prompt of 100 tokens: too long for the GPUs here"

    asyncio.run(story())


def test_who_comes_back_has_nothing_of_what_it_had(directory: Path):
    decided = Settings(slo_s=60.0, degree=2)
    here = site(live.small_plan(), SHAPE.shape(live.NAME), decided, dc=None)

    async def story() -> None:
        world = World(directory, here)
        world.do("arrive", 1)
        await asyncio.sleep(0)
        first = next(name for name, tasks in world.processes.tasks.items() if tasks)
        world.join(first)
        assert any(world.processes.tasks.values()), "booked again"
        await world.end()
        assert await world.clients[0] == "answered"

    asyncio.run(story())


async def of_one_batch(world: World) -> tuple[str, str]:
    """Two requests that a worker has as one piece of work."""
    for _ in range(40):
        world.do("arrive", 0)
        await asyncio.sleep(0)
        for bookings in world.processes.tasks.values():
            for names in bookings.values():
                if len(names) > 1:
                    first, second, *_ = sorted(names)
                    return first, second
        for request in sorted(world.processes.decoding[DECODER]):
            if len(world.clients) > 12:
                world.hear(DECODER, Tokens(tokens=(Token(request=request, text="a", token=1),)))
    raise AssertionError("nothing was batched")


@pytest.mark.parametrize("ending", ["lost, booked again", "lost", "given up"])
def test_an_answer_that_streams_does_not_end_with_its_batch(
    directory: Path, monkeypatch: pytest.MonkeyPatch, ending: str
):
    decided = Settings(slo_s=60.0, degree=2, chunk_tokens=512, batch_tokens=512)
    here = site(live.small_plan(), SHAPE.shape(live.NAME), decided, dc=None)

    async def story() -> None:
        world = World(directory, here)
        streams, waits = await of_one_batch(world)
        world.hear(DECODER, Tokens(tokens=(Token(request=streams, text="a", token=1),)))
        held = {
            name for name, tasks in world.processes.tasks.items() if {streams, waits} <= set().union(*tasks.values())
        }
        if ending == "given up":
            later_s = time.monotonic() + 1000.0
            with monkeypatch.context() as patch:
                patch.setattr(time, "monotonic", lambda: later_s)
                world.engine._give_up()
        else:
            for name in held if ending == "lost, booked again" else world.names:
                world.leave(name)
        working = {request for tasks in world.processes.tasks.values() for request in set().union(*tasks.values())}
        assert streams not in working
        assert (waits in working) == (ending == "lost, booked again")
        await world.end()
        ends = {f"r{number}": await client for number, client in enumerate(world.clients)}
        assert ends[streams] == "answered"
        assert ends[waits] == {"lost, booked again": "answered", "lost": "Broken", "given up": "Busy"}[ending]

    asyncio.run(story())


def test_a_worker_that_comes_back_tells_its_overruns(directory: Path):
    decided = Settings(slo_s=60.0, degree=2)
    here = site(live.small_plan(), SHAPE.shape(live.NAME), decided, dc=None)

    async def story() -> bytes:
        world = World(directory, here)
        name = world.names[0]
        for overruns in (3, 1):
            world.join(name)
            world.hear(
                name, Windows(trains=True, offered_s=9, used_s=1, overruns=overruns, overrun_s=0.5, guard_s=0.001)
            )
        return world.metrics.text()

    assert b"geotrain:overruns_total 4.0" in asyncio.run(story())
