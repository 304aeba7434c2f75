"""Everything that can happen to requests, in any order: none is lost, none ends twice, and all is given back."""

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.prefill.booking import Booking, Command, Refuse
from geotrain.prefill.controller import Controller
from geotrain.prefill.fleet import Slot, fleet
from geotrain.prefill.forecast import Forecast
from geotrain.prefill.placing import NOTHING
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.request import BLOCK_TOKENS, End, Request
from geotrain.prefill.settings import Settings
from geotrain.workload import Model
from tests.prefill.parts import MODEL, PROMPTS, ask, cell, held_bytes, served, slot

CELL = cell([(-0.1, 0.3), (0.5, 0.7)], [(0.2, 0.5), (0.6, 0.9)], step_s=1.0)
OTHER = Model(name="other", layers=2, hidden=64, heads=2, vocab=100)
PER_TOKEN = PrefillTime(fixed_s=0.001, per_token_s=1e-4)


class World:
    """Slots that work bookings off, and somebody who keeps count."""

    def __init__(
        self, slots: list[Slot], degree: int = 1, models: tuple[Model, ...] = (MODEL,), **choices: Any
    ) -> None:
        given = {"slo_s": 1.0, "chunk_tokens": 512, "batch_tokens": 300, "suspension_s": 1.0, "degree": degree}
        self.settings = Settings(**given | choices)
        chunk = self.settings.chunk_tokens
        self.slots = slots
        self.kinds = fleet(slots, {m.name: served(m, PER_TOKEN) for m in models}, chunk_tokens=chunk, degree=degree)
        self.controller = Controller(slots, self.kinds, Forecast(CELL, guard_s=0.001, quantile=0.75), self.settings)
        self.now_s = 0.0
        self.waiting: dict[int, Request] = {}
        self.running: dict[int, Booking] = {}
        self.ends: dict[int, str] = {}
        self.reasons = Counter[str]()
        self.dead: set[int] = set()
        self.watched = True

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Refuse):
                assert self.waiting.pop(command.request.id) is command.request
                self.ends[command.request.id] = command.end
                self.reasons[command.reason] += 1
                assert command.retry_after_s >= 0 and math.isfinite(command.retry_after_s)
                continue
            booking = command.booking
            for request in booking.requests:
                assert self.waiting.pop(request.id) is request
            assert booking.number not in self.running
            assert not self.dead.intersection(booking.slots)
            assert self.now_s <= booking.start_s <= booking.end_s
            self.running[booking.number] = booking
        self.check()

    def check(self) -> None:
        if not self.watched:
            return
        assert self.controller.waiting == len(self.waiting)
        books = self.controller._ledger
        for model, crews in books.crews.items():
            mine = {id(kind) for kind in self.kinds[model]}
            held = Counter[int]()
            for booking in (booking for booking in self.running.values() if id(booking.kind) in mine):
                for place, layers in zip(booking.slots, booking.layers, strict=True):
                    held[place] += booking.tokens * layers
            for crew in crews:
                for places, rooms in zip(crew.kind.slots.tolist(), crew.kind.room.tolist(), strict=True):
                    for place, most in zip(places, rooms, strict=True):
                        left = int(crew.room[place])
                        assert left == NOTHING if place in self.dead else 0 <= left == most - held[place]
                for instance, (places, room) in enumerate(
                    zip(crew.kind.slots.tolist(), crew.room_tokens.tolist(), strict=True)
                ):
                    gone = bool(self.dead.intersection(places))
                    assert (room == NOTHING) == gone
                    assert crew.prefixes.tokens(instance) <= (0 if gone else room)
        sizes = held_bytes(list(chain(*self.kinds.values())), self.settings.chunk_tokens, list(self.running.values()))
        assert all(size <= self.slots[place].free_bytes * self.slots[place].gpus for place, size in sizes.items())

    def arrive(self, request: Request) -> None:
        self.waiting[request.id] = request
        self.obey(self.controller.arrive(request, self.now_s))

    def wait(self, time_s: float) -> None:
        """With a beacon at every full second, and the controller woken when it wants to be."""
        until_s = self.now_s + time_s
        while True:
            beacon_s = math.floor(self.now_s) + 1.0
            self.now_s = min(until_s, beacon_s, max(self.now_s, self.controller.wake_s))
            if self.now_s == beacon_s:
                self.controller.step_began(self.now_s)
                self.drop(*self.controller.give_up(self.now_s))
            if self.now_s in (beacon_s, self.controller.wake_s) or self.now_s > self.controller.wake_s:
                self.obey(self.controller.advance(self.now_s))
                if self.controller.wake_s <= self.now_s < until_s:
                    self.now_s = min(until_s, self.now_s + 1e-3)
            if self.now_s >= until_s:
                return

    def finish(self, number: int) -> None:
        booking = self.running.pop(number)
        for request in booking.requests:
            self.ends[request.id] = End.DONE
        self.controller.done(number, self.now_s)
        self.check()

    def lose(self, place: int) -> None:
        self.dead.add(place)
        expected = [booking for booking in self.running.values() if place in booking.slots]
        void, commands = self.controller.lost(place, self.now_s)
        assert void == expected
        self.drop(void, commands)

    def drop(self, void: list[Booking], commands: list[Command]) -> None:
        for booking in void:
            del self.running[booking.number]
            self.waiting |= {request.id: request for request in booking.requests}
        self.obey(commands)

    def cancel(self, request_id: int) -> None:
        if self.controller.cancel(request_id):
            del self.waiting[request_id]
            self.ends[request_id] = "cancelled"
        self.check()

    def end(self) -> None:
        """Let everybody finish."""
        for _ in range(100):
            for number in list(self.running):
                self.finish(number)
            if not self.waiting:
                break
            self.wait(0.1)
        self.assert_empty()

    def assert_empty(self) -> None:
        assert not self.waiting and not self.running
        controller, books = self.controller, self.controller._ledger
        assert not controller._promised_s and not books._open and not any(books._on_slot)
        assert not controller._queue._flow_end and controller._queue.work_s == 0


SCENES = {
    "one slot each": lambda **more: World([slot(0), slot(1), slot(0), slot(1)], **more),
    "pairs": lambda **more: World([slot(row % 2) for row in range(6)], degree=2, **more),
    "little memory": lambda **more: World([slot(row % 2, free_bytes=3.4e6) for row in range(4)], **more),
    "two models": lambda **more: World(
        [slot(row % 2, free_bytes=8e6) for row in range(4)], models=(MODEL, OTHER), **more
    ),
    "some of its own": lambda **more: World([slot(0), slot(1), slot(0, dedicated=True)], **more),
}

REQUESTS = st.fixed_dictionaries(
    {
        "tokens": st.sampled_from([1, 40, 200, 600, 1500, 4000]),
        "tenant": st.sampled_from("ab"),
        "priority": st.integers(0, 2),
        "model": st.sampled_from(["", "tiny", "other"]),
        "blocks": PROMPTS,
    }
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), REQUESTS),
        st.tuples(st.just("arrive"), REQUESTS),
        st.tuples(st.just("burst"), st.integers(2, 30)),
        st.tuples(st.just("wait"), st.integers(0, 60)),
        st.tuples(st.just("finish"), st.integers(0, 9)),
        st.tuples(st.just("lose"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 40)),
    ),
    max_size=30,
)


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
@given(events=EVENTS)
@settings(max_examples=30)
def test_whatever_happens(scene: Callable[..., World], events: list[tuple[str, Any]]) -> None:
    world, number = scene(), 0
    for event, what in events:
        if event == "arrive":
            blocks = what["blocks"][: math.ceil(what["tokens"] / BLOCK_TOKENS)]
            world.arrive(ask(number, **what | {"blocks": blocks}, at_s=world.now_s))
            number += 1
        elif event == "burst":
            for _ in range(what):
                world.arrive(ask(number, 150, at_s=world.now_s, model="tiny", tenant="abc"[number % 3]))
                number += 1
        elif event == "wait":
            world.wait(what / 40)
        elif event == "finish" and world.running:
            world.finish(sorted(world.running)[what % len(world.running)])
        elif event == "lose":
            world.lose(what % len(world.slots))
        elif event == "cancel":
            world.cancel(what)
    world.end()
    assert sorted(world.ends) == list(range(number))


def test_ten_thousand_requests_leave_nothing_behind() -> None:
    """Each of a tenant of its own, twice as many as can be served, and many with prefixes."""
    world, luck = SCENES["little memory"](), random.Random(1)
    world.watched = False
    for number in range(10_000):
        world.wait(0.01)
        for booking in [each for each in world.running.values() if each.end_s + each.hand_over_s <= world.now_s]:
            world.finish(booking.number)
        tokens = luck.choice([20, 100, 500, 1200])
        prefix = luck.randrange(50)
        blocks = tuple(100 * prefix + n for n in range(tokens // BLOCK_TOKENS))
        world.arrive(ask(number, tokens, at_s=world.now_s, tenant=f"tenant {number}", blocks=blocks))
    world.end()
    assert sorted(world.ends) == list(range(10_000))
    assert 2_000 < Counter(world.ends.values())[End.DONE] < 9_000
    alone, pairs = world.controller._ledger.crews["tiny"]
    assert (alone.room[alone.kind.slots] == alone.kind.room).all() and alone.room is pairs.room
    assert len(alone.prefixes._where) * BLOCK_TOKENS <= alone.room_tokens.sum() and not pairs.prefixes._where


def test_who_waits_when_all_slots_are_lost_is_told() -> None:
    world = SCENES["one slot each"]()
    for number in range(40):
        world.arrive(ask(number, 600, at_s=0.0))
    assert world.waiting and world.running
    for place in range(4):
        world.lose(place)
    world.wait(5.0)
    assert not world.waiting and not world.running
    assert set(world.ends) == set(range(40))
    world.end()


def test_a_batch_without_room_is_booked_one_by_one_as_far_as_that_goes() -> None:
    world = World([slot(0)])
    world.kinds["tiny"][0].room[:] = 1550 * MODEL.layers
    world.controller = Controller(world.slots, world.kinds, Forecast(CELL, guard_s=0.0, quantile=0.75), world.settings)
    world.now_s = 0.29
    world.arrive(ask(0, 1400, at_s=0.29))
    for number in (1, 2):
        world.arrive(ask(number, 100, at_s=0.29))
    assert list(world.waiting) == [1, 2]
    world.wait(0.3)
    assert [[request.id for request in booking.requests] for booking in world.running.values()] == [[0], [1]]
    assert (world.ends, world.reasons) == ({2: End.REJECTED}, {"busy": 1})
    world.end()


def test_a_prompt_too_long_for_one_slot_gets_two_unless_others_are_turned_away_already() -> None:
    """4,000 tokens take one slot 0.62 s, 8,000 take it 1.23 s, and two of them 0.65 s; the SLO is 1 s."""
    world = World([slot(0)] * 2)
    for number, tokens, slots, end_s in ((0, 4000, 1, 0.6209), (1, 8000, 2, 2.647)):
        world.now_s = 2.0 * number
        world.arrive(ask(number, tokens, at_s=world.now_s))
        (booking,) = world.running.values()
        assert len(booking.slots) == slots and booking.end_s == pytest.approx(end_s)
        world.end()
    for number in range(100, 150):
        world.arrive(ask(number, 2000, at_s=world.now_s))
    world.end()
    assert Counter(world.ends.values())[End.REJECTED] > 10
    world.now_s = 5.0
    world.arrive(ask(3, 8000, at_s=5.0))
    assert world.ends[3] == End.REJECTED


def test_unknown_models_and_prompts_that_fit_nowhere_are_refused_at_once() -> None:
    world = SCENES["two models"]()
    world.arrive(ask(0, model="tiny"))
    world.arrive(ask(1, model="huge"))
    world.arrive(ask(2))
    world.arrive(ask(3, 10**6, model="other"))
    assert world.ends == dict.fromkeys([1, 2, 3], End.REJECTED)
    assert world.reasons == {"unknown model": 2, "too long": 1}
    world.end()
    assert world.ends[0] == End.DONE


def test_with_one_model_nobody_needs_to_name_it() -> None:
    world = SCENES["pairs"]()
    world.arrive(ask(0))
    (booking,) = world.running.values()
    assert len(booking.slots) == 2 and booking.slots[0] != booking.slots[1]


def test_who_would_be_late_is_told_when_to_come_back() -> None:
    world = SCENES["one slot each"]()
    refused = []
    for number in range(200):
        request = ask(number, 500)
        commands = world.controller.arrive(request, 0.0)
        refused += [command for command in commands if isinstance(command, Refuse)]
    assert refused and {command.reason for command in refused} == {"busy"}
    assert all(0 < command.retry_after_s < 10 for command in refused)


def test_who_can_no_longer_be_in_time_is_told_at_once() -> None:
    """Training got much slower while they were waiting for the second window."""
    world = World([slot(0)])
    for number, tokens in enumerate((2900, 1000, 100)):
        world.arrive(ask(number, tokens))
    assert world.controller.waiting == 2
    forecast, seen = world.controller._forecast, CELL.start_s * 5
    forecast.learn(seen, seen + CELL.end_s - CELL.start_s, forecast.lead_s, 5.0)
    world.now_s = 0.1
    world.controller.step_began(world.now_s)
    world.obey(world.controller.advance(world.now_s))
    assert world.ends == {1: End.REJECTED, 2: End.REJECTED}


def test_who_waits_for_a_busy_slot_keeps_no_other_idle() -> None:
    """The third ends soonest where its prefix is, behind the second; the fourth need not wait for that."""
    world = World([slot(0), slot(0)], slo_s=20.0)
    blocks = tuple(range(40))
    world.arrive(ask(0, 40 * BLOCK_TOKENS + 1, blocks=blocks))
    world.finish(1)
    for request in (ask(1, 10_000), ask(2, 40 * BLOCK_TOKENS + 10, blocks=blocks), ask(3, 100)):
        world.arrive(request)
    assert [booking.slots for booking in world.running.values()] == [[0], [0], [1]]


def test_a_promise_is_kept_where_times_are_as_predicted() -> None:
    """Worked off exactly as booked, nobody who was let in is late."""
    world, luck = SCENES["one slot each"](), random.Random(3)
    ttft_s: dict[int, float] = {}
    for number in range(600):
        world.arrive(ask(number, luck.choice([50, 300, 900]), at_s=world.now_s, tenant=luck.choice("ab")))
        world.wait(0.02)
        for booking in sorted(world.running.values(), key=lambda each: each.end_s):
            if booking.end_s + booking.hand_over_s <= world.now_s:
                ttft_s |= {request.id: booking.end_s - request.arrival_s for request in booking.requests}
                world.finish(booking.number)
    assert len(ttft_s) > 100
    assert max(ttft_s.values()) <= world.settings.slo_s


def test_dedicated_gpus_are_the_last_resort() -> None:
    world = SCENES["some of its own"](slo_s=0.5)
    own = {2}
    world.arrive(ask(0, 100))
    assert not own & {place for booking in world.running.values() for place in booking.slots}
    for number in range(1, 40):
        world.arrive(ask(number, 900))
    elsewhere = [booking for booking in world.running.values() if own & set(booking.slots)]
    assert elsewhere and all(booking.end_s + booking.hand_over_s <= 0.5 for booking in elsewhere)
    # Whoever went there would have been late in the bubbles, and there is nobody left for whom it would have done.
    assert len(elsewhere) == 5
    assert Counter(world.ends.values()) == {End.REJECTED: world.reasons["busy"]}
    world.end()


def test_who_cancels_is_forgotten_but_not_once_booked() -> None:
    world = SCENES["one slot each"]()
    for number in range(30):
        world.arrive(ask(number, 600))
    waiting, booked = next(iter(world.waiting)), next(iter(world.running.values())).requests[0].id
    assert not world.controller.cancel(booked)
    world.cancel(waiting)
    assert world.ends[waiting] == "cancelled"
    assert not world.controller.cancel(waiting)
    world.end()


def test_what_was_booked_on_a_lost_slot_is_booked_again_or_failed() -> None:
    world = SCENES["one slot each"]()
    for number in range(8):
        world.arrive(ask(number, 500))
    before = {booking.number: booking for booking in world.running.values()}
    lost = [booking for booking in before.values() if booking.slots == [0]]
    world.lose(0)
    again = [booking for booking in world.running.values() if booking.number not in before]
    assert lost and again
    assert {r.id for booking in lost for r in booking.requests} == {
        *(r.id for booking in again for r in booking.requests),
        *world.ends,
    }
    assert set(world.ends.values()) <= {End.FAILED}
    world.end()


def test_tenants_share_and_priorities_come_first() -> None:
    """Two that ask for more than there is get as much as each other; an urgent one overtakes them both."""
    world, had, urgent_s = SCENES["one slot each"](slo_s=3.0), Counter[str](), []
    number = 0
    while world.now_s < 30:
        for tenant, count in (("a", 6), ("b", 2)):
            for _ in range(count):
                world.arrive(ask(number, 500, at_s=world.now_s, tenant=tenant))
                number += 1
        if number % 80 == 0:
            world.arrive(ask(number, 100, at_s=world.now_s, tenant="c", priority=3))
            number += 1
        world.wait(0.05)
        for booking in [each for each in world.running.values() if each.end_s + each.hand_over_s <= world.now_s]:
            for request in booking.requests:
                had[request.tenant] += request.input_tokens
                urgent_s += [world.now_s - request.arrival_s] if request.tenant == "c" else []
            world.finish(booking.number)
    assert had["a"] == pytest.approx(had["b"], rel=0.1)
    assert urgent_s and max(urgent_s) < 2.0
    assert world.waiting


def test_what_hangs_is_given_up() -> None:
    """Its slots never have time; whoever waits behind it is booked in the end."""
    world = SCENES["one slot each"]()
    for number in range(4):
        world.arrive(ask(number, 500))
    assert len(world.running) == 4
    world.wait(1.9)
    assert not world.ends
    world.wait(1.5)
    assert world.ends == dict.fromkeys(range(4), End.FAILED)
    assert world.reasons == {"suspended too long": 4}
    world.arrive(ask(9, 500, at_s=world.now_s))
    (booking,) = world.running.values()
    assert booking.end_s < world.now_s + 0.5
    world.end()


def test_broken_promises_make_it_careful_but_not_for_ever() -> None:
    """Everything takes three seconds longer for some steps: with so long a margin nobody could be let in again."""
    world, admitted = SCENES["one slot each"](suspension_s=9.0), Counter[int]()
    world.watched = False
    for step in range(25):
        late_s = 3.0 if 5 <= step < 10 else 0.0
        for number in range(400 * step, 400 * step + 400):
            world.arrive(ask(number, 200, at_s=world.now_s))
            admitted[step] += number not in world.ends
            world.wait(0.0025)
            for booking in [each for each in world.running.values() if each.end_s + late_s <= world.now_s]:
                world.finish(booking.number)
    assert min(admitted[step] for step in range(5, 15)) < 0.8 * admitted[4]
    assert admitted[24] > 0.9 * admitted[4]
