"""A slot does what its script says, in that order, with what its neighbours send; and says when it is idle."""

import threading
import time
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.action import Action, Kind
from geotrain.plan import ScheduleName
from geotrain.training.executor import Executor
from geotrain.training.idling import Idling
from geotrain.training.script import Script
from tests.threads import together
from tests.training.plans import plan

Did = list[tuple[int, Action]]


class Numbers:
    """Compute on numbers: what goes in and out tells whether every parcel came to the right place."""

    def __init__(self, did: Did, pipeline: int, last: int) -> None:
        self._did, self._pipeline, self._last = did, pipeline, last
        self._kept: set[tuple[int, int]] = set()
        self._split: set[tuple[int, int]] = set()

    def forward(self, stage: int, microbatch: int, given: str | None, *, keep: bool) -> str | None:
        assert given == (None if stage == 0 else f"activation {stage - 1} {microbatch}")
        self._note(stage, Kind.F, microbatch)
        if keep:
            self._kept.add((stage, microbatch))
        return None if stage == self._last else f"activation {stage} {microbatch}"

    def recompute(self, stage: int, microbatch: int) -> None:
        self._note(stage, Kind.R, microbatch)
        self._kept.add((stage, microbatch))

    def backward(self, stage: int, microbatch: int, given: str | None) -> str | None:
        self._note(stage, Kind.B, microbatch)
        return self._back(stage, microbatch, given)

    def backward_input(self, stage: int, microbatch: int, given: str | None) -> str | None:
        self._note(stage, Kind.I, microbatch)
        self._split.add((stage, microbatch))
        return self._back(stage, microbatch, given)

    def backward_weight(self, stage: int, microbatch: int) -> None:
        self._note(stage, Kind.W, microbatch)
        self._split.remove((stage, microbatch))

    def settle(self) -> None: ...

    def _back(self, stage: int, microbatch: int, given: str | None) -> str | None:
        assert given == (None if stage == self._last else f"gradient {stage + 1} {microbatch}")
        self._kept.remove((stage, microbatch))
        return None if stage == 0 else f"gradient {stage} {microbatch}"

    def _note(self, stage: int, kind: Kind, microbatch: int) -> None:
        self._did.append((self._pipeline, Action(stage, kind, microbatch)))


class Shelf:
    """A post office that all slots of a pipeline share."""

    def __init__(self) -> None:
        self._parcels: dict[tuple[int, bool, int, int], str] = {}
        self._changed = threading.Condition()

    def send(self, step: int, backward: bool, stage: int, microbatch: int, parcel: str) -> None:
        with self._changed:
            self._parcels[step, backward, stage, microbatch] = parcel
            self._changed.notify_all()

    def has(self, step: int, backward: bool, stage: int, microbatch: int) -> bool:
        return (step, backward, stage, microbatch) in self._parcels

    def notice(self, step: int, backward: bool, stage: int, microbatch: int, *, wait: bool = True) -> None: ...

    def receive(self, step: int, backward: bool, stage: int, microbatch: int) -> str:
        key = step, backward, stage, microbatch
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._parcels, 20.0), f"{key} never came"
            return self._parcels.pop(key)


class Log:
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def action(self, kind: Kind, stage: int, microbatch: int, start_s: float, end_s: float) -> None:
        self.spans.append((start_s, end_s))


@settings(max_examples=20, deadline=None)
@given(
    schedule=st.sampled_from(
        ["gpipe", "1f1b", "varuna", "zero-bubble", "zero-bubble-2p", "atlas", "auto", "interleaved"]
    ),
    stages=st.integers(1, 4),
    pipelines=st.integers(1, 2),
    recompute=st.booleans(),
)
def test_every_slot_does_its_list_and_every_parcel_finds_its_place(
    schedule: ScheduleName, stages: int, pipelines: int, recompute: bool
):
    chunks = 2 if schedule == "interleaved" else 1
    stages = max(stages, chunks)
    made = plan(
        ["east", "south", "west", "north"][:stages],
        pipelines_per_cell=pipelines,
        schedule=schedule,
        interleave=chunks,
        layers=stages * chunks,
        job={"recompute": recompute},
    )
    script = Script.of(made)
    for pipeline in range(pipelines):
        shelf = Shelf()
        did: list[Did] = [[] for _ in range(stages)]
        logs = [Log() for _ in range(stages)]
        executors = [
            Executor(
                script.cues(pipeline, stage),
                num_model_stages=script.num_model_stages,
                compute=Numbers(did[stage], pipeline, script.num_model_stages - 1),
                post=shelf,
                log=logs[stage],
            )
            for stage in range(stages)
        ]
        together(*(partial(_two_steps, one) for one in executors))
        for stage in range(stages):
            listed = [cue.action for cue in script.cues(pipeline, stage)]
            assert [action for _, action in did[stage]] == listed * 2
            spans = logs[stage].spans
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def _two_steps(executor: Executor[str]) -> None:
    executor.step(0)
    executor.step(1)


class Ear:
    """Keeps what it is told: each window with its start, the end last foreseen, and its real end."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float]] = []
        self.windows: list[list[float]] = []
        self.is_open = False

    def step(self, number: int, begin_s: float, length_s: float) -> None:
        self.steps.append((number, begin_s))

    def idle(self, mark: int, now_s: float, end_s: float, lead_s: float) -> None:
        if not self.is_open:
            self.windows.append([now_s, end_s])
        self.windows[-1][1] = end_s
        self.is_open = True

    def busy(self, now_s: float) -> None:
        assert self.is_open
        self.windows[-1].append(now_s)
        self.is_open = False

    def close(self) -> None: ...


def test_an_idle_slot_says_until_when_and_when_it_is_over():
    script = Script.of(plan(["east", "south"], schedule="1f1b", link={"rtt": "200 ms"}))
    cues, ear, shelf, log = script.cues(0, 1), Ear(), Shelf(), Log()
    executor = Executor(
        cues,
        num_model_stages=2,
        compute=Numbers([], 0, 1),
        post=shelf,
        log=log,
        idling=Idling(cues, step_time_s=script.step_time_s, listener=ear),
    )

    def feed() -> None:
        for microbatch in range(4):
            while not ear.is_open:
                time.sleep(0.001)
            shelf.send(0, False, 0, microbatch, f"activation 0 {microbatch}")
            while len(log.spans) < 2 * microbatch + 2:
                time.sleep(0.001)

    together(lambda: executor.step(0), feed)
    ((number, begin_s),) = ear.steps
    assert number == 0
    assert ear.windows[0][1] - begin_s == pytest.approx(cues[0].start_s)
    starts_s = [start_s for start_s, _ in log.spans]
    assert [end_s for _, _, end_s in ear.windows] == starts_s[::2]
    # Nothing that the slot does lies in a window.
    assert all(start_s >= end_s for (_, end_s), (start_s, _, _) in zip(log.spans[1::2], ear.windows[1:], strict=False))


def test_what_is_there_already_makes_no_window():
    script = Script.of(plan(["east", "south"], schedule="1f1b"))
    cues, ear, shelf = script.cues(0, 1), Ear(), Shelf()
    for microbatch in range(4):
        shelf.send(0, False, 0, microbatch, f"activation 0 {microbatch}")
    idling = Idling(cues, step_time_s=script.step_time_s, listener=ear)
    Executor(cues, num_model_stages=2, compute=Numbers([], 0, 1), post=shelf, log=Log(), idling=idling).step(0)
    assert (len(ear.steps), ear.windows) == (1, [])
