"""What must never happen on a slot, whatever training does, whoever asks for what, and whoever fills."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from geotrain.errors import DoesNotFitError
from geotrain.prefill.booking import Booking
from geotrain.prefill.request import End, Request
from geotrain.prefill.settings import Settings
from geotrain.prefill.trace import Trace
from geotrain.simulation.prefill.player import Player
from geotrain.simulation.prefill.scene import Scene
from tests.simulation.plans import make_plan
from tests.simulation.prefill.strategies import MODELS, SCHEDULES, Recorded, calibrations, played, scenes, traces

CLOSE_S = 1e-9


def training_on(player: Player, row: int) -> list[tuple[float, float, float]]:
    """When it wanted the slot, got it, and gave it back; what takes no time is in nobody's way."""
    assert isinstance(player.training, Recorded)
    return [(wanted, got, end) for r, wanted, got, end in player.training.log if r == row and end > got + CLOSE_S]


def pieces(player: Player) -> dict[int, list[tuple[float, float]]]:
    """By slot, as far as training was recorded."""
    spans, of_slot = player.spans, defaultdict(list)
    for slot, start_s, end_s in zip(spans.slot.tolist(), spans.start_s.tolist(), spans.end_s.tolist(), strict=True):
        if start_s < player.training.begin_s:
            of_slot[slot].append((start_s, end_s))
    return of_slot


def assert_one_thing_at_a_time(scene: Scene, player: Player) -> None:
    for slot, mine in pieces(player).items():
        both = list(mine)
        if not scene.slots[slot].dedicated:
            training = training_on(player, scene.slots[slot].row)
            both += [(got, end) for _, got, end in training]
            wanted, ends = np.array([w for w, _, _ in training]), np.array([e for _, _, e in training])
            for start_s, _ in mine:
                assert not ((wanted + CLOSE_S < start_s) & (start_s < ends - CLOSE_S)).any(), "begins beside training"
        for (_, end_s), (start_s, _) in pairwise(sorted(both)):
            assert end_s <= start_s + CLOSE_S, f"slot {slot} does two things at once"


def assert_everybody_ends_once(trace: Trace, player: Player) -> None:
    """That none ends twice is the player's own assertion."""
    assert sorted(player.ends) == [request.id for request in trace.requests]
    assert all(at_s >= request.arrival_s for request in trace.requests for _, _, at_s in [player.ends[request.id]])


def assert_what_is_done_was_worked_on(scene: Scene, player: Player, runs: list[Booking]) -> None:
    """As long as booked, on the booked slots, in order, and before it ended."""
    spans = player.spans
    for booking in runs:
        rows = np.flatnonzero(spans.request == booking.requests[0].id)
        worked_s = (spans.end_s - spans.start_s)[rows]
        assert worked_s.sum() == pytest.approx(sum(booking.unit_s) * sum(booking.layers) * scene.pace(booking))
        assert set(spans.slot[rows].tolist()) == set(booking.slots)
        ends_s = [spans.end_s[rows][spans.slot[rows] == slot].max() for slot in booking.slots]
        assert all(later >= sooner + booking.hop_s - CLOSE_S for sooner, later in pairwise(ends_s))
        for request in booking.requests:
            end, _, at_s = player.ends[request.id]
            assert end == End.DONE
            assert at_s == pytest.approx(ends_s[-1] + booking.hand_over_s)
            assert spans.start_s[rows].min() >= request.arrival_s


def drawn(data: st.DataObject, schedule: str, *, rough: bool) -> tuple[Scene, Trace]:
    scene = data.draw(scenes(schedule, rough=rough), label="scene")
    try:
        assert scene.kinds
    except DoesNotFitError:
        assume(False)
    return scene, data.draw(traces(scene.models), label="trace")


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(data=st.data())
@settings(max_examples=10)
def test_in_calm_weather_training_does_not_notice(schedule: str, data: st.DataObject) -> None:
    scene, trace = drawn(data, schedule, rough=False)
    player, audited = played(scene, trace)
    assert_everybody_ends_once(trace, player)
    assert_one_thing_at_a_time(scene, player)
    assert_what_is_done_was_worked_on(scene, player, audited.runs)
    assert not audited.open
    assert player.overruns == 0
    assert set(player.training.slowdown) <= {0.0}
    assert Counter(end for end, _, _ in player.ends.values()).keys() <= {End.DONE, End.REJECTED}
    for slot, mine in pieces(player).items():
        wanted = np.array([wanted for wanted, _, _ in training_on(player, scene.slots[slot].row)])
        for start_s, end_s in mine:
            following = wanted[wanted > start_s]
            assert not len(following) or end_s <= following.min() - scene.settings.guard_s + CLOSE_S


@pytest.mark.parametrize("way", ["ours", "reactive", "fixed"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@given(data=st.data())
@settings(max_examples=5)
def test_in_any_weather_one_thing_at_a_time_and_nobody_is_lost(schedule: str, way: str, data: st.DataObject) -> None:
    scene, trace = drawn(data, schedule, rough=True)
    player, audited = played(scene, trace, way)
    assert_everybody_ends_once(trace, player)
    assert_one_thing_at_a_time(scene, player)
    assert not audited.open
    if not scene.deaths and not any(end == End.FAILED for end, _, _ in player.ends.values()):
        assert_what_is_done_was_worked_on(scene, player, audited.runs)
    for slot, time_s in scene.deaths:
        assert all(start_s <= time_s for start_s, _ in pieces(player)[slot])
    if player.overruns == 0:
        assert set(player.training.slowdown) <= {0.0}
    begins_s = player.training.begins_s
    assert begins_s == sorted(begins_s)


@given(data=st.data())
@settings(max_examples=3)
def test_the_best_schedule_found_is_no_exception(data: st.DataObject) -> None:
    scene, trace = drawn(data, "auto", rough=data.draw(st.booleans()))
    player, _ = played(scene, trace)
    assert_everybody_ends_once(trace, player)
    assert_one_thing_at_a_time(scene, player)


@given(data=st.data())
@settings(max_examples=5)
def test_same_seed_same_outcome(data: st.DataObject) -> None:
    scene, trace = drawn(data, "atlas", rough=True)
    (one, _), (other, _) = (played(scene, trace) for _ in range(2))
    assert one.ends == other.ends
    assert one.training.begins_s == other.training.begins_s
    for column in ("slot", "start_s", "end_s", "request", "tokens"):
        assert getattr(one.spans, column).tolist() == getattr(other.spans, column).tolist()


def scene_of(**more) -> Scene:
    """Stage 0: F at 0-10 ms, B at 140-160 ms. Stage 1: F at 60-70, B at 70-90; 10 ms on the wire, 40 ms on the way."""
    given = {"forward": [10, 10], "backward": [20, 20], "occupancy": [10.0], "latency": [40], "microbatches": 1}
    plan = make_plan(**given | more.pop("plan", {}))
    choices = Settings(slo_s=2.0, guard_s=0.001, chunk_tokens=1000, **more.pop("choices", {}))
    return Scene(plan=plan, models=MODELS[:1], settings=choices, calibrations=calibrations(0.1), **more)


def trace_of(*arrivals_s: float, tokens: int = 1000) -> Trace:
    requests = (Request(id=n, arrival_s=at_s, input_tokens=tokens) for n, at_s in enumerate(arrivals_s))
    return Trace(name="few", requests=tuple(requests))


def runs(player: Player, slot: int) -> list[tuple[float, float]]:
    """Pieces in milliseconds, those that follow each other at once as one."""
    joined: list[tuple[float, float]] = []
    for start_s, end_s in pieces(player)[slot]:
        if joined and start_s - joined[-1][1] < CLOSE_S:
            start_s, _ = joined.pop()
        joined.append((start_s, end_s))
    return [(round(1e3 * start_s, 6), round(1e3 * end_s, 6)) for start_s, end_s in joined]


def test_three_prompts_in_the_bubbles_of_two_stages() -> None:
    """102 ms each, four layers of 25.5 ms. Slot 0 idles from 10 to 140 ms, slot 1 from 90 to 220, or to 60 at first."""
    player, _ = played(scene_of(), trace_of(0.0, 0.0, 0.0))
    assert runs(player, 0) == [(10, 137.5)]
    assert runs(player, 1) == [(0, 51), (90, 141)]
    assert [1e3 * at_s for _, _, at_s in player.ends.values()] == pytest.approx([112, 141, 246.5])
    assert (player.tokens, player.overruns) == (3000, 0)


def test_what_takes_longer_than_predicted_holds_training_up_and_is_then_known() -> None:
    """Each layer takes six times as long. The first one overruns, the second would fit into no bubble."""
    scene = scene_of()
    player, _ = played(scene, trace_of(0.1), pace=lambda booking: 6.0)
    assert runs(player, 1) == [(100, 253)]
    assert player.overruns == 1
    training = [tuple(round(1e3 * time_s, 6) for time_s in span) for span in training_on(player, 1)]
    assert training[2:4] == [(220, 253, 263), (263, 263, 283)]
    assert player.training.slowdown[:3] == pytest.approx([0, 33 / 160, 0])
    assert_one_thing_at_a_time(scene, player)
    end, reason, at_s = player.ends[0]
    assert (end, reason) == (End.FAILED, "suspended too long")
    assert at_s == pytest.approx(0.1 + 2.0 + 5.0, abs=0.17)


def test_a_worker_that_dies_in_the_middle_is_replaced() -> None:
    scene = scene_of(deaths=((0, 0.05),))
    player, audited = played(scene, trace_of(0.0))
    assert [booking.slots for booking in audited.runs] == [[0], [1]]
    assert player.ends[0][0] == End.DONE
    assert_one_thing_at_a_time(scene, player)


def test_when_all_workers_die_everybody_is_told() -> None:
    scene = scene_of(deaths=((0, 0.05), (1, 0.06)))
    player, _ = played(scene, trace_of(0.0, 0.0, 0.0, 1.0))
    assert Counter((end, reason) for end, reason, _ in player.ends.values()) == {
        (End.FAILED, "slot lost"): 3,
        (End.REJECTED, "busy"): 1,
    }


@pytest.mark.parametrize("pipelines", [2, 3])
def test_where_links_are_used_in_turns_a_hold_brings_training_to_others_sooner(pipelines: int) -> None:
    """What is running there then, and was to end in time, holds it up as well."""
    scene = scene_of(
        plan={"pipelines": pipelines, "microbatches": 2, "sharing": "temporal", "occupancy": [60.0], "latency": [10]}
    )
    trace = trace_of(*(number / 40 for number in range(12)), tokens=2000)
    player, _ = played(scene, trace, "reactive", pace=lambda booking: 2.0)
    assert player.overruns > 1
    assert_one_thing_at_a_time(scene, player)
