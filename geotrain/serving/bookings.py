"""Bookings that workers have been told of, and the requests whose first tokens should come of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from geotrain.prefill.booking import Booking
from geotrain.serving.requests import Live


@dataclass(frozen=True)
class _Booked:
    booking: Booking
    waiting: set[Live]


class Bookings:
    """A booking is here until none of its requests waits for it any more."""

    def __init__(self) -> None:
        self._booked: dict[int, _Booked] = {}

    def add(self, booking: Booking, lives: Sequence[Live]) -> None:
        """These wait for it now."""
        self._booked[booking.number] = _Booked(booking, set(lives))
        for live in lives:
            live.booking = booking.number

    def waiting(self, number: int) -> Collection[Live]:
        """For it; nobody if it is over."""
        return self._booked[number].waiting if number in self._booked else ()

    def void(self, number: int) -> bool:
        """Nobody waits for it any more; whether somebody did."""
        if (booked := self._booked.pop(number, None)) is None:
            return False
        for live in booked.waiting:
            live.booking = None
        return True

    def through(self, live: Live) -> Booking | None:
        """It waits no more; its booking, if it was the last one that did."""
        assert live.booking is not None
        booked = self._booked[live.booking]
        booked.waiting.remove(live)
        live.booking = None
        return None if booked.waiting else self._booked.pop(booked.booking.number).booking
