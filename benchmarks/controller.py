"""The prefill controller alone: every booking takes as long as was predicted, and only decisions are timed."""

import gc
import heapq
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType

from geotrain.prefill.booking import Command, Run
from geotrain.prefill.controller import Controller
from geotrain.prefill.request import Request
from geotrain.simulation.prefill.scene import Scene

_NOBODYS = (type, ModuleType, FunctionType, BuiltinFunctionType)


class Drive:
    """Calls the controller as a service would, on a virtual clock."""

    def __init__(self, scene: Scene) -> None:
        self._forecast = scene.forecast(guard_s=scene.settings.guard_s)
        self._controller = Controller(scene.slots, scene.kinds, self._forecast, scene.settings)
        self._beacon_s = self._forecast.step_s
        self._running: list[tuple[float, int]] = []
        self._total_s = 0.0
        self.arrived = self.refused = 0
        self.decision_s: list[float] = []
        """One for each request whose fate a call decided, or for the call if it decided none."""

    def play(self, requests: Sequence[Request]) -> None:
        """As they arrive."""
        for request in requests:
            self._until(request.arrival_s)
            self.arrived += 1
            self._call(self._controller.arrive, request, request.arrival_s)

    @property
    def mean_s(self) -> float:
        """Everything that was done, per request."""
        return self._total_s / self.arrived

    @property
    def held_bytes(self) -> int:
        """What the controller holds on to."""
        seen: set[int] = set()
        todo: list[object] = [self._controller]
        size_bytes = 0
        while todo:
            thing = todo.pop()
            if id(thing) not in seen and not isinstance(thing, _NOBODYS):
                seen.add(id(thing))
                size_bytes += sys.getsizeof(thing)
                todo += gc.get_referents(thing)
        return size_bytes

    def _until(self, time_s: float) -> None:
        controller = self._controller
        while True:
            end_s = self._running[0][0] if self._running else math.inf
            now_s = min(end_s, self._beacon_s, controller.wake_s)
            if now_s > time_s:
                return
            if now_s == end_s:
                self._call(controller.done, heapq.heappop(self._running)[1], now_s)
            elif now_s == self._beacon_s:
                self._beacon_s += self._forecast.step_s
                self._call(controller.step_began, now_s)
            else:
                self._call(controller.advance, now_s)

    def _call(self, method: Callable[..., Iterable[Command] | None], *arguments: object) -> None:
        # Time of this thread: whatever else keeps the machine busy does not count.
        began_s = time.thread_time()
        commands = method(*arguments)
        took_s = time.thread_time() - began_s
        self._total_s += took_s
        decided = 0
        for command in commands or ():
            if isinstance(command, Run):
                booking = command.booking
                heapq.heappush(self._running, (booking.end_s + booking.hand_over_s, booking.number))
                decided += len(booking.requests)
            else:
                self.refused += 1
                decided += 1
        self.decision_s += [took_s / max(1, decided)] * max(1, decided)
