"""Who is booked where: frontiers of the slots, room on the instances, and the soonest end for whoever comes next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from geotrain.prefill.booking import Booking
from geotrain.prefill.crew import Crew, Work
from geotrain.prefill.fleet import Kind, Slot
from geotrain.prefill.forecast import Forecast
from geotrain.prefill.placing import NOTHING, lay, place
from geotrain.prefill.request import Request
from geotrain.prefill.settings import Settings
from geotrain.timeline import Floats

_FOREVER_S = 1e15
_LEAST_RPS = 0.1


@dataclass(slots=True, kw_only=True, eq=False)
class Offer:
    """The best place found for some requests."""

    crew: Crew
    instance: int
    now_s: float
    start_s: float
    end_s: float
    unit_s: Floats
    hop_s: float
    cached_tokens: int
    work_s: float
    hand_over_s: float

    def ttft_s(self, quantile: float) -> float:
        """From now to the first token at the decoder, if prefill takes as long as it does at that quantile."""
        late_s = self.work_s * (self.crew.kind.time.factor(quantile) - 1)
        return self.end_s - self.now_s + late_s + self.hand_over_s


class Ledger:
    """Keeps every booking from when it is made until it is closed."""

    def __init__(
        self, slots: Sequence[Slot], kinds: Mapping[str, Sequence[Kind]], forecast: Forecast, settings: Settings
    ) -> None:
        self._forecast, self._settings = forecast, settings
        self.crews = {model: _crews(len(slots), each, settings.chunk_tokens) for model, each in kinds.items()}
        self._largest = {m: max(int(crew.room_tokens.max()) for crew in crews) for m, crews in self.crews.items()}
        self._crew_of = {id(crew.kind): crew for crews in self.crews.values() for crew in crews}
        self._homes: list[list[tuple[Crew, int]]] = [[] for _ in slots]
        """Of each slot: the instances, one of each model, whose layers it holds."""
        for crew in self._crew_of.values():
            for instance, group in enumerate([] if crew.kind.together else crew.kind.slots.tolist()):
                for slot in group:
                    self._homes[slot].append((crew, instance))
        # Dedicated slots share a row behind the forecast's: one window without end.
        self._always = forecast.bubbles.num_slots
        self._own_rows = np.array([self._always if slot.dedicated else slot.row for slot in slots])
        self._rows = self._own_rows.copy()
        self._gone: set[int] = set()
        self._first = np.append(forecast.bubbles.first, forecast.bubbles.first[-1] + 1)
        self._frontier_s = np.zeros(len(slots))
        self._slip_s = [0.0] * len(slots)
        """By how much what was booked on a slot has turned out to be late."""
        self._open: dict[int, tuple[Booking, list[float]]] = {}
        self._on_slot: list[set[int]] = [set() for _ in slots]
        self._made = 0
        self.refresh()

    def refresh(self) -> None:
        """The forecast has changed."""
        forecast = self._forecast
        self._start_s = np.append(forecast.start_s, -_FOREVER_S)
        self._end_s = np.append(forecast.usable_end_s, _FOREVER_S)
        so_far = np.append(0.0, np.cumsum(np.maximum(forecast.usable_end_s - forecast.start_s, 0.0)))
        self._idle = np.append(np.diff(so_far[forecast.bubbles.first]) / forecast.step_s, 1.0)
        crews = [crew for crew in self._crew_of.values() if not crew.kind.like.dedicated]
        alive = np.unique(np.concatenate([crew.kind.slots[crew.room_tokens != NOTHING].ravel() for crew in crews]))
        self.rate = float(self._idle[self._rows[alive]].sum())
        """Slot-seconds of bubbles per second."""
        self.complete = any((crew.room_tokens != NOTHING).any() for crew in self._crew_of.values())
        """Whether some instance has all of its slots."""

    def largest(self, model: str) -> int:
        """Tokens of the longest prompt that some instance could hold."""
        return self._largest[model]

    def crowded(self, model: str, tokens: int) -> bool:
        """Whether so many tokens have no room in the bubbles until something there is done."""
        return all(crew.room_tokens.max() < tokens for crew in self.crews[model] if not crew.kind.like.dedicated)

    def has_idle(self, model: str, now_s: float) -> bool:
        """Whether an instance in the bubbles has nothing to do."""
        if self._frontier_s.min() > now_s:
            return False
        for crew in self.crews[model]:
            if not crew.kind.together and not crew.kind.like.dedicated:
                dry = crew.kind.slots[(self._frontier_s[crew.kind.slots] <= now_s).all(axis=1)]
                if any(self._gone.isdisjoint(slots) for slots in dry.tolist()):
                    return True
        return False

    def capacity_rps(self, model: str, tokens: int) -> float:
        """Prompts of that length in a second, on all slots that are there."""
        return max(_LEAST_RPS, self.rate / self.crews[model][0].prompt(tokens, 0).total_s)

    def best(
        self,
        model: str,
        requests: tuple[Request, ...],
        now_s: float,
        *,
        dedicated: bool = False,
        together: bool = False,
    ) -> Offer | None:
        """Where the requests, one or a batch, end soonest."""
        found: Offer | None = None
        tokens, blocks = requests[0].input_tokens, requests[0].blocks
        for crew in self.crews[model]:
            if (crew.kind.like.dedicated, crew.kind.together) == (dedicated, together):
                work = crew.prompt(tokens, 0) if len(requests) == 1 else crew.batch(requests)
                found = self._sooner(found, crew, None, work, now_s)
                for instance, cached in crew.prefixes.longest(blocks):
                    work = crew.prompt(tokens, min(cached, tokens - 1))
                    found = self._sooner(found, crew, instance, work, now_s)
        return found

    def _sooner(self, found: Offer | None, crew: Crew, only: int | None, work: Work, now_s: float) -> Offer | None:
        """The best of all instances, or only one of them, if that is sooner than what was found."""
        kind, forecast = crew.kind, self._forecast
        until_s = now_s + self._settings.slo_s + self._settings.suspension_s
        instance, start_s, end_s = place(
            self._first,
            self._start_s,
            self._end_s,
            self._idle,
            forecast.begin_s,
            forecast.step_s,
            self._rows,
            self._frontier_s,
            kind.slots if only is None else kind.slots[only : only + 1],
            kind.layers if only is None else kind.layers[only : only + 1],
            crew.room,
            work.tokens,
            work.unit_s,
            work.hop_s,
            now_s,
            until_s,
        )
        if instance == NOTHING or (found is not None and end_s >= found.end_s):
            return found
        return Offer(
            crew=crew,
            instance=instance if only is None else only,
            now_s=now_s,
            start_s=start_s,
            end_s=end_s,
            unit_s=work.unit_s,
            hop_s=work.hop_s,
            cached_tokens=work.cached_tokens,
            work_s=work.total_s,
            hand_over_s=work.hand_over_s,
        )

    def book(self, requests: tuple[Request, ...], offer: Offer) -> Booking:
        """Take the offer, which must have been made at this moment."""
        kind, instance, forecast = offer.crew.kind, offer.instance, self._forecast
        slots, frontier_s = kind.slots[instance], np.empty(kind.slots.shape[1])
        lay(
            self._first,
            self._start_s,
            self._end_s,
            forecast.begin_s,
            forecast.step_s,
            self._rows,
            self._frontier_s,
            slots,
            kind.layers[instance],
            offer.unit_s,
            offer.hop_s,
            offer.now_s,
            _FOREVER_S,
            frontier_s,
        )
        self._frontier_s[slots] = frontier_s
        self._made += 1
        booking = Booking(
            number=self._made,
            requests=requests,
            kind=kind,
            instance=instance,
            unit_s=tuple(offer.unit_s.tolist()),
            cached_tokens=offer.cached_tokens,
            start_s=offer.start_s,
            end_s=offer.end_s,
            hop_s=offer.hop_s,
            hand_over_s=offer.hand_over_s,
        )
        places = slots.tolist()
        self._open[booking.number] = booking, [self._slip_s[slot] for slot in places]
        for slot in places:
            self._on_slot[slot].add(booking.number)
        self._hold(booking, 1)
        return booking

    def done(self, number: int, now_s: float) -> tuple[Booking, bool]:
        """It has been handed over; True if a slot has nothing left to do."""
        booking, slips_s = self._open[number]
        self._close(number)
        late_s = now_s - booking.end_s - booking.hand_over_s
        dry = False
        for slot, slip_s in zip(booking.slots, slips_s, strict=True):
            # What is booked behind it moves by as much as it was later than its predecessors had been already.
            shift_s = slip_s + late_s - self._slip_s[slot]
            self._slip_s[slot] += shift_s
            busy = bool(self._on_slot[slot])
            self._frontier_s[slot] = max(now_s, self._frontier_s[slot] + shift_s) if busy else now_s
            dry = dry or not busy
        crew = self._crew_of[id(booking.kind)]
        for request in booking.requests:
            if request.blocks and not crew.kind.together:
                crew.prefixes.keep(booking.instance, request.blocks, crew.left_tokens(booking.instance))
        return booking, dry

    def catch_up(self, now_s: float) -> None:
        """What should have been done by now is late at least until now, and all that is booked behind it."""
        for slot, numbers in enumerate(self._on_slot):
            if numbers:
                booking, slips_s = self._open[min(numbers)]
                late_s = now_s - booking.end_s - booking.hand_over_s
                shift_s = slips_s[booking.slots.index(slot)] + late_s - self._slip_s[slot]
                if shift_s > 0:
                    self._slip_s[slot] += shift_s
                    self._frontier_s[slot] += shift_s

    def lost(self, slot: int, now_s: float) -> list[Booking]:
        """The slot is gone, and with it its instances; what was booked on them is void."""
        self._gone.add(slot)
        for crew, instance in self._homes[slot]:
            crew.room[slot] = NOTHING
            crew.prefixes.shrink(instance, 0)
        self.refresh()
        return self._void(sorted(self._on_slot[slot]), now_s)

    def back(self, slot: int, now_s: float) -> None:
        """The slot is there again, with nothing on it."""
        self._gone.discard(slot)
        self._frontier_s[slot] = now_s
        for crew, instance in self._homes[slot]:
            crew.room[slot] = crew.kind.room[instance, crew.kind.slots[instance].tolist().index(slot)]
        self.refresh()

    def vacate(self, slot: int, *, vacant: bool) -> None:
        """Whether the slot is idle all the time, for want of training."""
        self._rows[slot] = self._always if vacant else self._own_rows[slot]
        self.refresh()

    def drop(self, number: int, now_s: float) -> Booking:
        """A booking that nobody waits for any more is void."""
        return self._void([number], now_s)[0]

    def overdue(self, arrived_s: float, now_s: float) -> list[Booking]:
        """What is still open of who arrived before that time is void."""
        late = [n for n, (booking, _) in self._open.items() if max(r.arrival_s for r in booking.requests) < arrived_s]
        return self._void(late, now_s)

    def _void(self, numbers: list[int], now_s: float) -> list[Booking]:
        void = [self._close(number) for number in numbers]
        for slot in {slot for booking in void for slot in booking.slots}:
            if not self._on_slot[slot]:
                self._frontier_s[slot] = now_s
        return void

    def _close(self, number: int) -> Booking:
        booking, _ = self._open.pop(number)
        for slot in booking.slots:
            self._on_slot[slot].discard(number)
        self._hold(booking, -1)
        return booking

    def _hold(self, booking: Booking, sign: int) -> None:
        """Take, or give back, the memory of a booking; prefixes kept there make room."""
        mine, slots, tokens = self._crew_of[id(booking.kind)], booking.slots, sign * booking.tokens
        for slot, layers in zip(slots, booking.layers, strict=True):
            if slot not in self._gone:
                mine.room[slot] -= tokens * layers
        homes = (
            [home for slot in slots for home in self._homes[slot]] if mine.kind.together else [(mine, booking.instance)]
        )
        for crew, instance in homes if sign > 0 else ():
            if crew.room is mine.room and crew.prefixes.tokens(instance):
                crew.prefixes.shrink(instance, crew.left_tokens(instance))


def _crews(num_slots: int, kinds: Sequence[Kind], chunk_tokens: int) -> list[Crew]:
    """Of one model; they share its memory."""
    room = np.zeros(num_slots, dtype=np.int64)
    for kind in kinds:
        room[kind.slots] = kind.room
    return [Crew(kind, chunk_tokens, room) for kind in kinds]
