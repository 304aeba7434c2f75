"""Training plans, weather and requests of all sorts, and somebody who watches what is made of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from geotrain.plan import Plan
from geotrain.prefill.booking import Booking, Command, Run
from geotrain.prefill.calibration import Calibration, Calibrations
from geotrain.prefill.controller import Controller
from geotrain.prefill.request import BLOCK_TOKENS, Request
from geotrain.prefill.settings import Settings
from geotrain.prefill.trace import Trace
from geotrain.simulation import DISTRIBUTIONS, Jitter
from geotrain.simulation.prefill.player import Player, Sight
from geotrain.simulation.prefill.rivals import Blind, FixedShare, Reactive, Watching
from geotrain.simulation.prefill.scene import Scene
from geotrain.simulation.prefill.training import Training
from geotrain.simulation.prefill.weather import Spell, Weather
from geotrain.workload import Model
from tests.prefill.parts import held_bytes
from tests.simulation.prefill.test_steps import make

SCHEDULES = ["gpipe", "1f1b", "varuna", "atlas", "zero-bubble", "interleaved"]
MODELS = (
    Model(name="tiny", layers=4, hidden=64, heads=2, vocab=100),
    Model(name="small", layers=6, hidden=32, heads=2, vocab=100),
)
TENS = st.integers(1, 6).map(lambda tens: 10.0 * tens)
CALM = Weather()


@st.composite
def plans(draw: st.DrawFn, schedule: str) -> Plan:
    """Some tens of milliseconds an action; neighbours in one data center or not."""
    stages = draw(st.integers(2, 5))
    each = st.lists(TENS, min_size=stages, max_size=stages)
    occupancy = draw(st.lists(st.one_of(st.none(), TENS), min_size=stages - 1, max_size=stages - 1))
    case = {
        "forward": draw(each),
        "backward": draw(each),
        "recompute": draw(st.one_of(st.none(), each)),
        "occupancy": occupancy,
        "latency": [0.0 if each is None else draw(TENS) for each in occupancy],
        "microbatches": draw(st.integers(1, 6)),
        "pipelines": draw(st.integers(1, 3)),
        "cells": draw(st.integers(1, 2)),
        "sharing": draw(st.sampled_from(["spatial", "temporal"])),
        "gpu_memory": draw(st.sampled_from(["80 GiB", "8 MB"])),
    }
    return make(schedule, case)


@st.composite
def weathers(draw: st.DrawFn) -> Weather:
    """Anything but calm."""
    spreads = st.sampled_from([0.0, 0.02, 0.1, 0.3])
    jitter = Jitter(
        compute=draw(spreads),
        wan=draw(spreads),
        step=draw(spreads),
        distribution=draw(st.sampled_from(DISTRIBUTIONS)),
        seed=draw(st.integers(0, 9)),
    )
    spell = st.builds(
        Spell,
        on=st.one_of(st.just("wan"), st.integers(0, 1)),
        start_s=st.integers(0, 3).map(float),
        end_s=st.integers(2, 6).map(float),
        factor=st.sampled_from([0.7, 1.5, 2.0]),
    )
    return Weather(jitter=jitter, spells=tuple(draw(st.lists(spell, max_size=2))))


def calibrations(time_s: float, spread: float = 1.0) -> Calibrations:
    """A thousand tokens of the first model take that long; in one case of twenty `spread` times as long or longer."""
    return Calibrations(
        calibrations=tuple(
            Calibration(
                model=model.name,
                gpu="test",
                tensor_parallel=1,
                fixed_s=0.02 * time_s * scale,
                per_cached_s=1e-5 * time_s * scale,
                per_token_s=0.9e-3 * time_s * scale,
                per_pair_s=1e-7 * time_s * scale,
                spread=((0.5, 1.0), (0.95, spread)) if spread > 1 else ((0.5, 1.0),),
            )
            for scale, model in zip((1.0, 0.6), MODELS, strict=True)
        )
    )


@st.composite
def scenes(draw: st.DrawFn, schedule: str, *, rough: bool) -> Scene:
    plan = draw(plans(schedule))
    slots = len(plan.stages) * plan.num_pipelines
    deaths = st.tuples(st.integers(0, slots - 1), st.integers(0, 40).map(lambda tenths: tenths / 10))
    scene = Scene(
        plan=plan,
        models=MODELS[: draw(st.integers(1, 2))],
        settings=Settings(
            slo_s=draw(st.sampled_from([0.3, 1.0, 4.0])),
            guard_s=draw(st.sampled_from([0.0005, 0.005])),
            chunk_tokens=draw(st.sampled_from([128, 512])),
            batch_tokens=draw(st.sampled_from([1, 300])),
        ),
        weather=draw(weathers()) if rough else CALM,
        deaths=tuple(draw(st.lists(deaths, max_size=2, unique_by=lambda death: death[0]))) if rough else (),
        calibrations=calibrations(draw(st.sampled_from([0.05, 0.2, 0.6])), 1.2 if rough else 1.0),
        seed=draw(st.integers(0, 9)),
    )
    fewest = min(sum(slot.dc == dc for slot in scene.slots) for dc in {slot.dc for slot in scene.slots})
    degree = draw(st.sampled_from([None, *range(1, min(3, fewest) + 1)]))
    return replace(scene, settings=replace(scene.settings, degree=degree))


@st.composite
def traces(draw: st.DrawFn, models: tuple[Model, ...], seconds: float = 3.0) -> Trace:
    """Some seconds of requests of several tenants, priorities and models; every third begins like another."""
    luck = np.random.default_rng(draw(st.integers(0, 99)))
    count = draw(st.integers(1, 60))
    arrivals = np.sort(luck.uniform(0, seconds, count))
    arrivals -= arrivals[0]
    requests = []
    for number, at_s in enumerate(arrivals.tolist()):
        tokens = int(luck.choice([1, 50, 200, 700, 2000, 60_000], p=[0.05, 0.25, 0.3, 0.3, 0.09, 0.01]))
        blocks = tuple(100 * int(luck.integers(3)) + n for n in range(-(-tokens // BLOCK_TOKENS)))
        requests.append(
            Request(
                id=number,
                arrival_s=at_s,
                input_tokens=tokens,
                model=models[int(luck.integers(len(models)))].name,
                tenant="abc"[int(luck.integers(3))],
                priority=int(luck.integers(3)),
                blocks=blocks if number % 3 == 0 else (),
            )
        )
    return Trace(name="made up", requests=tuple(requests))


class Recorded(Training):
    """Training of which every span is kept: row, when it wanted the slot, when it got it, and its end."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.log: list[tuple[int, float, float, float]] = []

    def roll(self) -> None:
        begin_s, number, step, holds_s = self.begin_s, self.number, self._step, self._holds_s
        for row, (starts, ends) in enumerate(zip(step.starts_s, step.ends_s, strict=True)):
            for position, (start_s, end_s) in enumerate(zip(starts, ends, strict=True)):
                held_s = holds_s.get((number, row, position), 0.0)
                self.log.append((row, begin_s + start_s, begin_s + start_s + held_s, begin_s + end_s))
        super().roll()


@dataclass
class Audited:
    """A policy whose every booking is checked against memory, and who keeps count."""

    policy: Any
    scene: Scene
    open: dict[int, Booking] = field(default_factory=dict)
    runs: list[Booking] = field(default_factory=list)

    @property
    def wake_s(self) -> float:
        return float(self.policy.wake_s)

    @wake_s.setter
    def wake_s(self, time_s: float) -> None:
        self.policy.wake_s = time_s

    def _seen(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            if isinstance(command, Run):
                self.open[command.booking.number] = command.booking
                self.runs.append(command.booking)
        if not isinstance(self.policy, Reactive):  # which does not care
            self._check_memory()
        return commands

    def _check_memory(self) -> None:
        slots, kinds = self.scene.slots, [kind for each in self.scene.kinds.values() for kind in each]
        held = held_bytes(kinds, self.scene.settings.chunk_tokens, list(self.open.values()))
        for place, size in held.items():
            assert size <= slots[place].free_bytes * slots[place].gpus * (1 + 1e-9), f"slot {place} holds {size}"

    def arrive(self, request: Request, now_s: float) -> list[Command]:
        return self._seen(self.policy.arrive(request, now_s))

    def advance(self, now_s: float) -> list[Command]:
        return self._seen(self.policy.advance(now_s))

    def ask(self, slot: int, now_s: float) -> list[Command]:
        return self._seen(self.policy.ask(slot, now_s))

    def step_began(self, now_s: float) -> None:
        self.policy.step_began(now_s)

    def done(self, number: int, now_s: float) -> None:
        del self.open[number]
        self.policy.done(number, now_s)

    def lost(self, slot: int, now_s: float) -> tuple[list[Booking], list[Command]]:
        return self._void(*self.policy.lost(slot, now_s))

    def give_up(self, now_s: float) -> tuple[list[Booking], list[Command]]:
        return self._void(*self.policy.give_up(now_s))

    def _void(self, void: list[Booking], commands: list[Command]) -> tuple[list[Booking], list[Command]]:
        for booking in void:
            del self.open[booking.number]
        return void, self._seen(commands)


def played(
    scene: Scene, trace: Trace, way: str = "ours", *, pace: Callable[[Booking], float] | None = None
) -> tuple[Player, Audited]:
    """One way of filling, with every step of training on record."""
    forecast = scene.forecast(
        guard_s=scene.settings.guard_s if way == "ours" else 0.0, fill=0.68 if way == "fixed" else 1
    )
    policy: Any = (
        Reactive(scene.kinds, scene.settings)
        if way == "reactive"
        else Controller(scene.slots, scene.kinds, forecast, scene.settings)
    )
    sights: dict[str, Sight] = {
        "ours": Watching(forecast),
        "reactive": Blind(),
        "fixed": FixedShare(forecast, 0.68),
    }
    audited = Audited(policy, scene)
    player = Player(
        Recorded(scene.steps, forecast),
        scene.slots,
        audited,
        sights[way],
        pace=pace or scene.pace,
        clock=lambda: 0.0,
        ask=audited.ask if way == "reactive" else None,
        deaths=scene.deaths,
    )
    player.play(trace.requests)
    return player, audited
