"""Bookings on slots and instances: who ends soonest, what is left, and what is given back."""

import numpy as np
import pytest

from geotrain.prefill.booking import Booking
from geotrain.prefill.fleet import Kind, Slot, fleet
from geotrain.prefill.forecast import Forecast
from geotrain.prefill.ledger import Ledger
from geotrain.prefill.placing import NOTHING
from geotrain.prefill.predictor import PrefillTime
from geotrain.prefill.request import BLOCK_TOKENS
from geotrain.prefill.settings import Settings
from tests.prefill.parts import MODEL, ask, cell, served, slot

CELL = cell([(0.0, 0.4)], [(0.2, 0.8)])
SETTINGS = Settings(guard_s=0.0, slo_s=5.0, chunk_tokens=1000)
PER_TOKEN = PrefillTime(per_token_s=1e-3)
"""A hundred tokens take 0.1 s on one slot."""


def ledger(slots: list[Slot], degree: int = 1, *, room_tokens: int | None = None) -> tuple[Ledger, list[Kind]]:
    kinds = fleet(slots, {"m": served(MODEL, PER_TOKEN)}, chunk_tokens=SETTINGS.chunk_tokens, degree=degree)
    if room_tokens is not None:
        for kind in kinds["m"]:
            kind.room[:] = room_tokens * MODEL.layers
    return Ledger(slots, kinds, Forecast(CELL, guard_s=0.0, quantile=0.75), SETTINGS), kinds["m"]


def booked(books: Ledger, number: int, tokens: int, now_s: float = 0.0) -> Booking:
    request = ask(number, tokens)
    offer = books.best("m", (request,), now_s)
    assert offer is not None
    return books.book((request,), offer)


def test_the_soonest_end_is_offered_and_what_is_booked_stands_in_the_way() -> None:
    """Slot 0 idles from 0 to 0.4 of every second, slot 1 from 0.2 to 0.8."""
    books, _ = ledger([slot(0), slot(1)])
    ends = []
    for number in range(6):
        offer = books.best("m", (ask(number, 200),), 0.0)
        assert offer is not None and offer.work_s == pytest.approx(0.2)
        booking = books.book((ask(number, 200),), offer)
        assert (booking.number, booking.slots, booking.layers) == (number + 1, [offer.instance], [4])
        ends.append((booking.slots[0], round(booking.end_s, 6)))
    assert ends == [(0, 0.2), (0, 0.4), (1, 0.4), (1, 0.6), (1, 0.8), (0, 1.2)]
    assert books.rate == pytest.approx(0.4 + 0.6)


def test_a_long_prompt_is_cut_over_windows_in_whole_layers() -> None:
    """Chunks of 1000 and 200 tokens: four layers of 0.25 s, two in each window of slot 1, and four of 0.05 s."""
    books, _ = ledger([slot(0), slot(1)])
    offer = books.best("m", (ask(0, 1200),), 0.0)
    assert offer is not None
    assert offer.unit_s == pytest.approx([0.25, 0.05])
    assert offer.instance == 1
    assert [offer.start_s, offer.end_s] == pytest.approx([0.2, 2.3])


def test_an_instance_of_two_slots_hands_on_and_is_as_long_as_its_chain() -> None:
    slots = [slot(0, fabric_latency_s=0.01), slot(0, fabric_latency_s=0.01)]
    books, _ = ledger(slots, degree=2)
    offer = books.best("m", (ask(0, 200),), 0.0)
    assert offer is not None
    assert (offer.hop_s, offer.hand_over_s) == (0.01, 0.01)
    assert [offer.start_s, offer.end_s] == pytest.approx([0.0, 0.21])
    assert offer.ttft_s(0.5) == pytest.approx(0.22)


def test_done_gives_room_back_and_moves_who_stands_behind() -> None:
    books, (kind,) = ledger([slot(0)], room_tokens=500)
    first, second = (booked(books, number, 100) for number in range(2))
    (crew,) = books.crews["m"]
    assert crew.room_tokens.tolist() == [300]
    assert books.best("m", (ask(2, 301),), 0.0) is None
    assert second.end_s == pytest.approx(0.2)
    booking, dry = books.done(first.number, 0.15)
    assert booking is first and not dry
    # 0.05 s late, and so is what follows.
    offer = books.best("m", (ask(2, 100),), 0.15)
    assert offer is not None and offer.end_s == pytest.approx(0.35)
    _, dry = books.done(second.number, 0.25)
    assert dry and crew.room_tokens.tolist() == [500] and crew.room.tolist() == kind.room[0].tolist()


def test_a_prefix_that_is_still_there_saves_its_work() -> None:
    books, _ = ledger([slot(0), slot(0)], room_tokens=3 * BLOCK_TOKENS)
    prompt = ask(0, 2 * BLOCK_TOKENS, blocks=(1, 2))
    offer = books.best("m", (prompt,), 0.0)
    assert offer is not None and offer.cached_tokens == 0
    booking = books.book((prompt,), offer)
    books.done(booking.number, 9.0)
    follows = ask(1, 2 * BLOCK_TOKENS + 100, blocks=(1, 2, 3))
    again = books.best("m", (follows,), 9.0)
    assert again is not None and (again.instance, again.cached_tokens) == (offer.instance, 2 * BLOCK_TOKENS)
    assert again.work_s == pytest.approx(0.1)
    # The same prompt once more has at least one token to do.
    same = books.best("m", (prompt,), 9.0)
    assert same is not None and same.cached_tokens == 2 * BLOCK_TOKENS - 1
    # Once somebody needs the room, it is gone.
    for number in (2, 3):
        booked(books, number, 2 * BLOCK_TOKENS, 9.0)
    assert all(found == BLOCK_TOKENS for _, found in books.crews["m"][0].prefixes.longest((1, 2)))


def test_a_lost_slot_takes_its_instance_and_bookings_with_it() -> None:
    books, _ = ledger([slot(0)] * 4, degree=2)
    bookings = [booked(books, number, 100) for number in range(4)]
    assert [booking.instance for booking in bookings] == [0, 1, 0, 1]
    void = books.lost(1, 0.05)
    assert void == [bookings[0], bookings[2]]
    alone, pairs = books.crews["m"]
    assert [crew.room_tokens[0] for crew in (alone, pairs)] == [NOTHING, NOTHING]
    assert books.lost(1, 0.06) == []
    assert books.rate == pytest.approx(0.4 * 2)
    assert {booked(books, number, 100, 0.1).instance for number in range(10, 14)} == {1}
    books.lost(3, 0.2)
    assert books.best("m", (ask(20, 100),), 0.2) is None
    assert books.rate == 0


def test_two_instances_are_through_a_long_prompt_sooner_together_and_share_the_memory_of_each() -> None:
    """Each has room for half of the prompt's layers when it has room for half as many tokens."""
    prompt = ask(0, 1200)
    books, _ = ledger([slot(0), slot(0)], room_tokens=600)
    assert books.largest("m") == 1200 and books.best("m", (prompt,), 0.0) is None
    assert books.best("m", (prompt,), 0.0, together=True) is not None
    books, _ = ledger([slot(0), slot(0)], room_tokens=3000)
    alone, together = (books.best("m", (prompt,), 0.0, together=both) for both in (False, True))
    assert alone is not None and together is not None
    assert (alone.work_s, together.work_s) == pytest.approx((1.2, 1.2))
    assert together.end_s < alone.end_s
    booking = books.book((prompt,), together)
    assert (booking.slots, booking.layers, booking.spans) == ([0, 1], [2, 2], [(0, 2), (2, 4)])
    crew, both = books.crews["m"]
    assert (crew.room_tokens.tolist(), both.room_tokens.tolist()) == ([2400, 2400], [4800])
    assert books.best("m", (ask(1, 2401),), 0.0) is None
    assert books.lost(0, 0.1) == [booking]
    assert (crew.room_tokens.tolist(), both.room_tokens.tolist()) == ([NOTHING, 3000], [NOTHING])
    books.back(0, 0.2)
    assert (crew.room_tokens.tolist(), both.room_tokens.tolist()) == ([3000, 3000], [6000])


def test_dedicated_slots_are_offered_when_asked_for() -> None:
    books, _ = ledger([slot(0), slot(0, dedicated=True)])
    own = books.best("m", (ask(0, 600),), 0.3, dedicated=True)
    bubbles = books.best("m", (ask(0, 600),), 0.3)
    assert own is not None and bubbles is not None
    assert own.crew.kind.like.dedicated and not bubbles.crew.kind.like.dedicated
    assert [own.start_s, own.end_s] == pytest.approx([0.3, 0.9])
    assert bubbles.end_s > 1.9
    books.book((ask(0, 600),), own)
    assert books.rate == pytest.approx(0.4)


def test_short_prompts_together_pay_what_is_fixed_once() -> None:
    slots = [slot(0)]
    kinds = fleet(slots, {"m": served(MODEL, PrefillTime(fixed_s=0.1, per_token_s=1e-3))}, chunk_tokens=1000, degree=1)
    books = Ledger(slots, kinds, Forecast(CELL, guard_s=0.0, quantile=0.75), SETTINGS)
    offer = books.best("m", (ask(0, 50), ask(1, 50)), 0.0)
    assert offer is not None and offer.work_s == pytest.approx(0.2)
    booking = books.book((ask(0, 50), ask(1, 50)), offer)
    assert booking.tokens == 100
    assert np.sum(booking.unit_s) * 4 == pytest.approx(0.2)


def test_what_is_long_overdue_is_void() -> None:
    books, (kind,) = ledger([slot(0)])
    early, late = (
        booked(books, 0, 100),
        books.book((ask(1, 100, at_s=3.0),), books.best("m", (ask(1, 100, at_s=3.0),), 3.0) or pytest.fail()),
    )
    assert books.overdue(3.0, 9.0) == [early]
    assert books.overdue(3.0, 9.0) == []
    assert books.crews["m"][0].room.tolist() == [kind.room[0, 0] - late.tokens * MODEL.layers]
    assert books.overdue(3.1, 9.0) == [late]
    assert booked(books, 2, 100, 9.0).end_s == pytest.approx(9.1)
