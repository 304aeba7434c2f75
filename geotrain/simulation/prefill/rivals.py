"""Other ways of filling, to compare with: what a worker sees of a window's end, and who decides without a forecast."""

import math
from collections import deque
from collections.abc import Mapping, Sequence

from geotrain.prefill.booking import Booking, Command, Refuse, Run
from geotrain.prefill.fleet import Kind
from geotrain.prefill.forecast import Forecast
from geotrain.prefill.request import End, Request
from geotrain.prefill.settings import Settings
from geotrain.simulation.prefill.training import View


class Watching:
    """Ours: news of what is coming, and a guard."""

    def __init__(self, forecast: Forecast) -> None:
        self._forecast = forecast

    def end_s(self, view: View, unit_s: float) -> float:
        """As far as anybody knows by now, less the guard."""
        forecast, guard_s = self._forecast, self.guard_s(view)
        end_s = forecast.end_s_of(view.window, view.begin_s, view.now_s - view.notice_s, view.started_s) - guard_s
        if view.started_s is None and end_s < view.now_s + unit_s:
            # What comes is heard of too late for a unit: trust the plan, one unit at a time.
            planned_s = forecast.planned_end_s(view.window, view.begin_s) - guard_s
            return min(planned_s, view.now_s + unit_s)
        return end_s

    def guard_s(self, view: View) -> float:
        """Learned from drift."""
        return float(self._forecast.guard_s[view.row])


class Blind:
    """Sees only that the slot is idle."""

    def end_s(self, view: View, unit_s: float) -> float:
        """Never known."""
        return math.inf

    def guard_s(self, view: View) -> float:
        """None."""
        return 0.0


class FixedShare:
    """Uses the first part of each planned window, and trusts the plan."""

    def __init__(self, forecast: Forecast, share: float) -> None:
        self._forecast, self._share = forecast, share

    def end_s(self, view: View, unit_s: float) -> float:
        """That share of the window's planned length after its start."""
        length_s = float(self._forecast.end_s[view.window] - self._forecast.start_s[view.window])
        return view.open_s + self._share * length_s

    def guard_s(self, view: View) -> float:
        """The rest of the planned window."""
        length_s = float(self._forecast.end_s[view.window] - self._forecast.start_s[view.window])
        return (1 - self._share) * length_s


class Reactive:
    """One queue; a free slot takes the next request that could still be in time if nothing came between."""

    def __init__(self, kinds: Mapping[str, Sequence[Kind]], settings: Settings) -> None:
        self._settings = settings
        self._only = next(iter(kinds)) if len(kinds) == 1 else None
        self._heads = {
            (int(kind.slots[instance, 0]), model): (kind, instance)
            for model, each in kinds.items()
            for kind in each
            if not kind.together
            for instance in range(len(kind))
        }
        self._queues: dict[str, deque[Request]] = {model: deque() for model in kinds}
        self._open: dict[int, Booking] = {}
        self._dead: set[int] = set()
        self._numbers = 0
        self.wake_s = math.inf

    def arrive(self, request: Request, now_s: float) -> list[Command]:
        """Wait."""
        model = request.model or self._only
        if model is None or model not in self._queues:
            return [Refuse(request, End.REJECTED, "unknown model")]
        self._queues[model].append(request)
        return []

    def advance(self, now_s: float) -> list[Command]:
        """Drop who has waited too long."""
        late: list[Command] = []
        for queue in self._queues.values():
            while queue and now_s - queue[0].arrival_s > self._settings.slo_s:
                late.append(Refuse(queue.popleft(), End.REJECTED, "late"))
        return late

    def step_began(self, now_s: float) -> None:
        """Not its business."""

    def ask(self, slot: int, now_s: float) -> list[Command]:
        """The free slot takes the next that could be in time."""
        commands = self.advance(now_s)
        for model, queue in self._queues.items():
            kind, instance = self._heads.get((slot, model), (None, 0))
            while queue and kind is not None and not self._dead.intersection(kind.slots[instance].tolist()):
                request = queue.popleft()
                booking = self._booking(request, kind, instance, now_s)
                if booking is None:
                    commands.append(Refuse(request, End.REJECTED, "late"))
                    continue
                self._open[booking.number] = booking
                return [*commands, Run(booking)]
        return commands

    def done(self, number: int, now_s: float) -> None:
        """One less."""
        del self._open[number]

    def lost(self, slot: int, now_s: float) -> tuple[list[Booking], list[Command]]:
        """What was there is lost."""
        self._dead.add(slot)
        return self._void([booking for booking in self._open.values() if slot in booking.slots], "slot lost")

    def give_up(self, now_s: float) -> tuple[list[Booking], list[Command]]:
        """What was begun in a bubble that never came again."""
        since_s = now_s - self._settings.slo_s - self._settings.suspension_s
        late = [booking for booking in self._open.values() if booking.requests[0].arrival_s < since_s]
        return self._void(late, "suspended too long")

    def _void(self, void: list[Booking], reason: str) -> tuple[list[Booking], list[Command]]:
        for booking in void:
            del self._open[booking.number]
        return void, [Refuse(request, End.FAILED, reason) for booking in void for request in booking.requests]

    def _booking(self, request: Request, kind: Kind, instance: int, now_s: float) -> Booking | None:
        tokens = request.input_tokens
        parts = kind.time.chunks_s(tokens, 0, self._settings.chunk_tokens).tolist()
        hand_over_s = kind.hand_over_s(tokens, sum(parts))
        if now_s + sum(parts) + hand_over_s > request.arrival_s + self._settings.slo_s:
            return None
        if (tokens * kind.layers[instance] > kind.room[instance]).any():
            return None
        self._numbers += 1
        return Booking(
            number=self._numbers,
            requests=(request,),
            kind=kind,
            instance=instance,
            unit_s=tuple(part / kind.served.shape.layers for part in parts),
            cached_tokens=0,
            start_s=now_s,
            end_s=now_s + sum(parts),
            hop_s=kind.hop_s(min(tokens, self._settings.chunk_tokens)),
            hand_over_s=hand_over_s,
        )
