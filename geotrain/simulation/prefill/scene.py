"""Everything that all ways of filling a plan's bubbles have in common."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from geotrain.cluster import Datacenter
from geotrain.cost import stage_costs
from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.prefill.booking import Booking
from geotrain.prefill.bubbles import Bubbles, bubbles
from geotrain.prefill.calibration import Calibrations, prefill_time
from geotrain.prefill.fleet import Kind, Served, Slot, fleet
from geotrain.prefill.forecast import Forecast
from geotrain.prefill.request import Request
from geotrain.prefill.settings import Settings
from geotrain.prefill.trace import Trace
from geotrain.simulation.play import Played
from geotrain.simulation.prefill.steps import Steps
from geotrain.simulation.prefill.weather import Weather
from geotrain.simulation.result import Result
from geotrain.simulation.simulate import rehearse, run
from geotrain.workload import Model

SATURATION = 1.5
"""How much more than the bubbles can take is called saturating."""
_NORMAL_95 = 1.645
"""Standard deviations to the 95th percentile."""
_LUCK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that all ways of filling have in common."""

    plan: Plan
    models: tuple[Model, ...]
    settings: Settings = field(default_factory=Settings)
    weather: Weather = field(default_factory=Weather)
    deaths: tuple[tuple[int, float], ...] = ()
    """Slots whose prefill worker dies, and when."""
    calibrations: Calibrations | None = None
    seed: int = 0
    clock: Callable[[], float] = lambda: 0.0
    """Seconds by which decisions are timed."""

    @cached_property
    def rehearsed(self) -> tuple[Played, Result]:
        """The plan's step, as lists."""
        if self.plan.replicas:
            raise InputError("replicas are not yet played with prefill: the plan must have none")
        return rehearse(*run(self.plan))

    @cached_property
    def steps(self) -> Steps:
        """Training."""
        return Steps(self.rehearsed[0], self.weather)

    @cached_property
    def bubbles(self) -> Bubbles:
        """Of one cell."""
        stages = range(len(self.plan.stages))
        memory = [self.plan.datacenter_of(stage).usable_bytes for stage in stages]
        return bubbles(self.steps.timeline, stage_costs(self.plan), memory)

    @cached_property
    def slots(self) -> list[Slot]:
        """Of all cells, cell after cell; then the cluster's own prefill GPUs."""
        idle_s, found = self.bubbles.idle_s.tolist(), self.bubbles
        free = [float(min(found.free_bytes[found.of(row)], default=0.0)) for row in range(found.num_slots)]
        dcs = [self.plan.datacenter_of(row % len(self.plan.stages)) for row in range(found.num_slots)]
        cell = [self._slot(dcs[row], row, free[row], idle_s[row]) for row in range(found.num_slots)]
        own = [
            self._dedicated(dc, idle_s=self.bubbles.step_time_s)
            for dc in self.plan.cluster.datacenters
            for _ in range(dc.prefill_gpus // self.plan.tensor_parallel)
        ]
        return cell * self.plan.cells + own

    @property
    def num_training_slots(self) -> int:
        """Those with bubbles; they come first."""
        return self.bubbles.num_slots * self.plan.cells

    def _slot(self, dc: Datacenter, row: int, free_bytes: float, idle_s: float) -> Slot:
        return Slot(
            dc=dc.name,
            gpu=self.plan.cluster.gpu_kind(dc.name),
            gpus=self.plan.tensor_parallel,
            free_bytes=free_bytes,
            idle_s=idle_s,
            row=row,
            fabric_rate=math.inf if dc.fabric is None else dc.fabric.rate,
            fabric_latency_s=0.0 if dc.fabric is None else dc.fabric.latency_s,
        )

    def _dedicated(self, dc: Datacenter, idle_s: float) -> Slot:
        return replace(self._slot(dc, 0, dc.usable_bytes, idle_s), dedicated=True)

    @cached_property
    def equivalent(self) -> list[Slot]:
        """As many dedicated slots as the bubbles amount to, in the same data centers."""
        slots, step_s = self.slots[: self.num_training_slots], self.bubbles.step_time_s
        dcs = list(dict.fromkeys(slot.dc for slot in slots))
        amounts = np.array([sum(slot.idle_s for slot in slots if slot.dc == dc) for dc in dcs]) / step_s
        whole = np.maximum(np.floor(amounts), self.degree).astype(np.int64)
        missing = max(0, round(float(amounts.sum())) - int(whole.sum()))
        whole[np.argsort(whole - amounts, kind="stable")[:missing]] += 1
        return [
            self._dedicated(self.plan.cluster.datacenter(dc), idle_s=step_s)
            for dc, amount in zip(dcs, whole.tolist(), strict=True)
            for _ in range(amount)
        ]

    @property
    def degree(self) -> int:
        """Most slots of an instance."""
        return max(kind.degree for each in self.kinds.values() for kind in each if not kind.together)

    @cached_property
    def served(self) -> dict[str, Served]:
        """Models with their times on every GPU there is."""
        gpus = {slot.gpu: self.plan.cluster.datacenter(slot.dc).gpu for slot in self.slots}
        return {
            model.name: Served(
                shape=model,
                times={
                    name: prefill_time(model, gpu, self.plan.tensor_parallel, self.calibrations)[0]
                    for name, gpu in gpus.items()
                },
            )
            for model in self.models
        }

    @cached_property
    def kinds(self) -> dict[str, list[Kind]]:
        """Instances in the bubbles."""
        return self.instances(self.slots, self.settings.degree)

    def instances(self, slots: Sequence[Slot], degree: int | None) -> dict[str, list[Kind]]:
        """Instances on those slots."""
        return fleet(slots, self.served, chunk_tokens=self.settings.chunk_tokens, degree=degree)

    def forecast(self, *, guard_s: float = 0.0, fill: float = 1.0) -> Forecast:
        """What is known of the bubbles before the first step."""
        found, steady = self.bubbles, self.steps.steady
        forecast = Forecast(found, guard_s=guard_s, quantile=self.settings.guard_quantile, fill=fill)
        for row, triggers in enumerate(self.steps.triggers):
            for position, trigger in enumerate(triggers):
                if trigger is not None:
                    produced_s = steady.starts_s[trigger.slot][trigger.position]
                    forecast.lead_s[found.first[row] + position] = steady.starts_s[row][position] - produced_s
        return forecast

    def work_s(self, request: Request) -> float:
        """Slot-seconds of a request, nothing cached."""
        kind = self.kinds[request.model or self.models[0].name][0]
        return kind.time.seconds(request.input_tokens)

    def pace(self, booking: Booking) -> float:
        """By how much the real time of a booking differs from the predicted one."""
        width = math.log(booking.kind.time.factor(0.95)) / _NORMAL_95
        return math.exp(width * self._luck[booking.requests[0].id % len(self._luck)])

    @cached_property
    def _luck(self) -> list[float]:
        luck: list[float] = np.random.default_rng(self.seed).standard_normal(_LUCK).tolist()
        return luck


def saturating_rps(scene: Scene, trace: Trace) -> float:
    """A rate that is SATURATION times what the bubbles could take."""
    idle = sum(scene.bubbles.idle_s) * scene.plan.cells / scene.bubbles.step_time_s
    mean_s = sum(map(scene.work_s, trace.requests)) / len(trace.requests)
    return SATURATION * idle / mean_s
