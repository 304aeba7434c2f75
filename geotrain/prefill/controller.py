"""The controller: requests, beacons and reports in; bookings and refusals out. Pure: every time is an argument.

A request is let in if its predicted time to first token keeps the SLO, waits in fair order, and is booked, a short
while ahead, on the instance where it ends soonest; on two of them together if it is too long for one. Slots work their
bookings off in order, in their bubbles.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from geotrain.prefill.booking import Booking, Command, Refuse, Run
from geotrain.prefill.fleet import Kind, Slot
from geotrain.prefill.forecast import Forecast
from geotrain.prefill.ledger import Ledger, Offer
from geotrain.prefill.queue import FairQueue, Waiting
from geotrain.prefill.request import End, Request
from geotrain.prefill.settings import Settings

_MEMORY = 256
"""Promises that admission remembers the outcome of."""
_REVIEW = 32
"""After so many it thinks again."""
_MOST_MARGIN = 0.5
"""Share of the SLO; who kept everybody out would learn nothing."""
_LATELY = 256
"""Requests over which the share of those turned away is taken."""
_SPARE = 0.01
"""Above that share no prompt is divided between instances: their slots wait for each other, at the cost of others."""
_FORGETTING = 0.5
"""What is left of misses after a step in which few promises came due."""


class Controller:
    """Decides; whoever owns it tells the clients and the slots."""

    def __init__(
        self, slots: Sequence[Slot], kinds: Mapping[str, Sequence[Kind]], forecast: Forecast, settings: Settings
    ) -> None:
        self._forecast, self._settings = forecast, settings
        self._ledger = Ledger(slots, kinds, forecast, settings)
        self._only = next(iter(kinds)) if len(kinds) == 1 else None
        self._queue = FairQueue()
        self._promised_s: dict[int, float] = {}
        self._late_s = np.zeros(_MEMORY)
        self._kept = self._kept_before = 0
        self._refused = 0.0
        """Share of those turned away when they came, lately."""
        self._margin_s = 0.0
        """What promises are made longer by, after those that were missed."""
        self.wake_s = math.inf
        """When `advance` is worth calling again, if nothing else happens."""

    def step_began(self, now_s: float) -> None:
        """The step's beacon: all of its windows are known anew."""
        self._forecast.beacon(now_s)
        self._ledger.refresh()
        if self._kept - self._kept_before < _REVIEW:
            self._late_s *= _FORGETTING
            self._margin_s *= _FORGETTING
        self._kept_before = self._kept

    def arrive(self, request: Request, now_s: float) -> list[Command]:
        """A request: booked, queued or refused."""
        model = request.model or self._only
        if model is None or model not in self._ledger.crews:
            return [Refuse(request, End.REJECTED, "unknown model")]
        if request.input_tokens > self._ledger.largest(model):
            return [Refuse(request, End.REJECTED, "too long")]
        offer = self._ledger.best(model, (request,), now_s)
        ttft_s = self._predicted_s(request, offer)
        if ttft_s > self._settings.slo_s:
            offer = self._together(request, offer, now_s)
            ttft_s = self._predicted_s(request, offer)
        refused = offer is None or bool(ttft_s > self._settings.slo_s)
        self._refused += (refused - self._refused) / _LATELY
        if offer is None or refused:
            return self._elsewhere(request, now_s, ttft_s)
        self._promised_s[request.id] = now_s + ttft_s - self._margin_s
        if not len(self._queue) and offer.start_s <= now_s + self._horizon_s:
            return [self._run((request,), offer)]
        deadline_s = request.arrival_s + self._settings.slo_s
        self._queue.add(Waiting(request=request, work_s=offer.work_s, deadline_s=deadline_s))
        return self.advance(now_s) if len(self._queue) == 1 else []

    def advance(self, now_s: float) -> list[Command]:
        """Book those whose turn it is, as far ahead as slots need it."""
        commands: list[Command] = []
        self.wake_s = math.inf
        while len(self._queue):
            first = self._queue.first()
            offer = self._place(first.request, now_s)
            end_s = math.inf if offer is None else offer.end_s + offer.hand_over_s
            wake_s = self._wake_s(first, offer, now_s)
            if now_s < wake_s:
                self.wake_s = wake_s
                break
            self._queue.take()
            if offer is None or end_s > first.deadline_s:
                commands += self._elsewhere(first.request, now_s, end_s - first.request.arrival_s)
                continue
            batch = self._batch(first)
            together = offer if len(batch) == 1 else self._offer(batch, now_s)
            if together is not None:
                commands.append(self._run(batch, together))
                continue
            for request in batch:
                alone = self._place(request, now_s)
                commands += [self._run((request,), alone)] if alone else self._elsewhere(request, now_s, math.inf)
        return commands

    def done(self, number: int, now_s: float) -> None:
        """A booking has been worked off and handed over."""
        booking, dry = self._ledger.done(number, now_s)
        for request in booking.requests:
            self._judge(now_s - self._promised_s.pop(request.id, now_s))
        if dry and len(self._queue):
            self.wake_s = now_s

    def catch_up(self, now_s: float) -> None:
        """Take notice of what is late; to be called now and then where slots may be slower than they should."""
        self._ledger.catch_up(now_s)

    def lost(self, slot: int, now_s: float) -> tuple[list[Booking], list[Command]]:
        """A slot is gone: its bookings are void, and booked again where they can still be in time."""
        void = self._ledger.lost(slot, now_s)
        commands: list[Command] = []
        for request in (request for booking in void for request in booking.requests):
            offer = self._place(request, now_s)
            if offer is None or offer.end_s + offer.hand_over_s > request.arrival_s + self._settings.slo_s:
                self._promised_s.pop(request.id, None)
                commands.append(Refuse(request, End.FAILED, "slot lost"))
            else:
                commands.append(self._run((request,), offer))
        return void, commands

    def back(self, slot: int, now_s: float) -> None:
        """A slot that was lost is there again."""
        self._ledger.back(slot, now_s)

    def vacate(self, slot: int, *, vacant: bool) -> None:
        """Whether a slot is one big bubble, for want of training beside it."""
        self._ledger.vacate(slot, vacant=vacant)

    def drop(self, number: int, now_s: float) -> None:
        """Nobody waits for what was booked there any more."""
        for request in self._ledger.drop(number, now_s).requests:
            self._promised_s.pop(request.id, None)

    def give_up(self, now_s: float) -> tuple[list[Booking], list[Command]]:
        """Bookings that are long overdue are void: their slots have no time for them. To be called now and then."""
        void = self._ledger.overdue(now_s - self._settings.slo_s - self._settings.suspension_s, now_s)
        requests = [request for booking in void for request in booking.requests]
        for request in requests:
            self._promised_s.pop(request.id, None)
        return void, [Refuse(request, End.FAILED, "suspended too long") for request in requests]

    def cancel(self, request_id: int) -> bool:
        """The client is gone; True if the request was still waiting, False if it is booked or over."""
        return self._queue.remove(request_id) is not None and self._promised_s.pop(request_id, None) is not None

    def capacity_rps(self, tokens: int) -> float:
        """Prompts of that length that bubbles can take in a second, or a little if there are none now."""
        return self._ledger.capacity_rps(self._only or next(iter(self._ledger.crews)), tokens)

    @property
    def able(self) -> bool:
        """Whether anybody could prefill anything."""
        return self._ledger.complete

    @property
    def waiting(self) -> int:
        """Requests let in and not yet booked."""
        return len(self._queue)

    @property
    def _horizon_s(self) -> float:
        """How far ahead bookings are made: enough that no slot runs dry, and little that others could overtake."""
        return min(self._settings.slo_s / 4, self._forecast.step_s / 2)

    def _wake_s(self, first: Waiting, offer: Offer | None, now_s: float) -> float:
        """When to think about it again; now if there is nothing to wait for."""
        if offer is None:
            crowded = self._ledger.crowded(self._model(first.request), first.request.input_tokens)
            return now_s + self._horizon_s if crowded and now_s <= first.deadline_s else now_s
        wake_s = offer.start_s - self._horizon_s
        if wake_s <= now_s or offer.end_s + offer.hand_over_s > first.deadline_s:
            return now_s
        # Whoever waits for a certain slot must not keep those behind him off the others.
        return now_s if self._ledger.has_idle(self._model(first.request), now_s) else wake_s

    def _predicted_s(self, request: Request, offer: Offer | None) -> float:
        """Time to first token: exact for who comes first, by the work ahead for who has to queue."""
        if offer is None:
            return math.inf
        ttft_s = offer.ttft_s(self._settings.time_quantile) + self._margin_s
        ahead_s = self._queue.work_ahead_s(request, offer.work_s)
        return ttft_s + ahead_s / self._ledger.rate if ahead_s else ttft_s

    def _elsewhere(self, request: Request, now_s: float, ttft_s: float) -> list[Command]:
        """Dedicated GPUs, if there are any in time; else come back when the queue should be short enough."""
        self._promised_s.pop(request.id, None)
        offer = self._offer((request,), now_s, dedicated=True)
        waited_s = now_s - request.arrival_s
        if offer is not None and waited_s + offer.ttft_s(self._settings.time_quantile) <= self._settings.slo_s:
            return [self._run((request,), offer)]
        retry_s = ttft_s - self._settings.slo_s if math.isfinite(ttft_s) else self._forecast.step_s
        return [Refuse(request, End.REJECTED, "busy", max(0.001, retry_s))]

    def _offer(self, requests: tuple[Request, ...], now_s: float, *, dedicated: bool = False) -> Offer | None:
        return self._ledger.best(self._model(requests[0]), requests, now_s, dedicated=dedicated)

    def _place(self, request: Request, now_s: float) -> Offer | None:
        """The best for it, on two instances together if one would be late; it may be late all the same."""
        offer = self._offer((request,), now_s)
        if offer is None or offer.end_s + offer.hand_over_s > request.arrival_s + self._settings.slo_s:
            return self._together(request, offer, now_s)
        return offer

    def _together(self, request: Request, offer: Offer | None, now_s: float) -> Offer | None:
        """A sooner place on two instances together, while hardly anybody is turned away; else the one that is given."""
        if self._refused > _SPARE:
            return offer
        found = self._ledger.best(self._model(request), (request,), now_s, together=True)
        return offer if found is None or (offer is not None and offer.end_s <= found.end_s) else found

    def _model(self, request: Request) -> str:
        """Of a request that was let in."""
        model = request.model or self._only
        assert model is not None
        return model

    def _run(self, requests: tuple[Request, ...], offer: Offer) -> Run:
        return Run(self._ledger.book(requests, offer))

    def _batch(self, first: Waiting) -> tuple[Request, ...]:
        """The first, off the queue already, and those behind it that are short enough to go with it."""
        batch, tokens = [first.request], first.request.input_tokens
        while len(self._queue) and not first.request.blocks:
            following = self._queue.first().request
            tokens += following.input_tokens
            if tokens > self._settings.batch_tokens or following.blocks or following.model != first.request.model:
                break
            batch.append(self._queue.take().request)
        return tuple(batch)

    def _judge(self, late_s: float) -> None:
        """Learn by how much promises are missed."""
        self._late_s[self._kept % _MEMORY] = late_s
        self._kept += 1
        if self._kept % _REVIEW == 0:
            seen = self._late_s[: min(self._kept, _MEMORY)]
            late_s = float(np.quantile(seen, self._settings.time_quantile))
            self._margin_s = min(_MOST_MARGIN * self._settings.slo_s, max(0.0, late_s))
