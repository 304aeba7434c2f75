"""A slot that waits says until when: as the script has it, as the last steps were, as late as this one is."""

import time
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.action import Action, Kind
from geotrain.training.idling import Idling
from geotrain.training.script import Cue

CUES = [Cue(Action(1, Kind.F, m), start_s, start_s + 0.5) for m, start_s in enumerate((1.0, 3.0, 5.0))]
LENGTH_S = 8.0


class Ear:
    """Keeps the end last foreseen of every window, by whether it is over."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def step(self, number: int, begin_s: float, length_s: float) -> None:
        self.told.append((f"step {number}", length_s))

    def idle(self, mark: int, now_s: float, end_s: float, lead_s: float) -> None:
        self.told.append(("idle", end_s))

    def busy(self, now_s: float) -> None:
        self.told.append(("busy", now_s))

    def close(self) -> None: ...

    def foreseen(self) -> list[float]:
        return [time_s for what, time_s in self.told if what == "idle"]


def idling() -> tuple[Idling, Ear]:
    ear = Ear()
    return Idling(CUES, step_time_s=LENGTH_S, listener=ear), ear


def play(slot: Idling, step: int, begin_s: float, starts_s: list[float], length_s: float) -> None:
    """A step whose actions all wait; the others tell at its end, and it waits on for the next one."""
    slot.begin(step, begin_s)
    for mark, start_s in enumerate(starts_s):
        slot.wait(mark)
        slot.reach(mark, begin_s + start_s)
    slot.wait(slot.told)
    slot.reach(slot.told, begin_s + length_s)
    slot.wait(slot.next)


def test_at_first_the_script_is_all_there_is():
    slot, ear = idling()
    with patch.object(time, "monotonic", return_value=100.0):
        play(slot, 0, 100.0, [1.0, 3.0, 5.0], 8.0)
    assert ear.told == [
        ("step 0", 8.0),
        *[("idle", 101.0), ("busy", 101.0), ("idle", 103.0), ("busy", 103.0), ("idle", 105.0), ("busy", 105.0)],
        *[("idle", 108.0), ("busy", 108.0)],
        # Until the first input of the next step.
        ("idle", 109.0),
    ]


def test_what_follows_will_be_as_late_as_what_was_waited_for():
    slot, ear = idling()
    play(slot, 0, 100.0, [1.5, 3.5, 5.25], 8.25)
    assert ear.foreseen() == pytest.approx([101.0, 103.5, 105.5, 108.25, 109.25])


def test_the_next_step_begins_on_time_again():
    slot, ear = idling()
    play(slot, 0, 100.0, [1.5, 3.5, 5.5], 8.5)
    slot.begin(1, 108.6)
    slot.wait(0)
    assert ear.foreseen()[-1] == pytest.approx(109.6)
    # One window over the edge between two steps: it is foreseen anew, and over once.
    slot.reach(0, 109.6)
    assert [what for what, _ in ear.told][-4:] == ["idle", "step 1", "idle", "busy"]


@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=2))
def test_a_wrong_script_is_forgotten_and_a_stall_does_no_harm(stalls_s: list[float]):
    slot, ear = idling()
    begin_s = 0.0
    real_s = [2.0, 3.5, 7.0]
    for step in range(12):
        late_s = stalls_s[(step - 6) // 2] if step in range(6, 6 + 2 * len(stalls_s), 2) else 0.0
        told = len(ear.foreseen())
        play(slot, step, begin_s, [real_s[0], *(start_s + late_s for start_s in real_s[1:])], 10.0 + late_s)
        first_s, second_s, *rest_s = ear.foreseen()[told:]
        if step >= 6:
            # Nobody foresees a stall; before and after it all is as it should be.
            assert first_s == pytest.approx(begin_s + 2.0)
            assert second_s == pytest.approx(begin_s + 3.5)
            assert rest_s == pytest.approx([begin_s + late_s + end_s for end_s in (7.0, 10.0, 12.0)])
        begin_s += 10.0 + late_s


def test_a_pause_is_no_part_of_any_step():
    slot, ear = idling()
    begin_s = 0.0
    for step in range(8):
        slot.begin(step, begin_s)
        for mark, cue in enumerate(CUES):
            slot.reach(mark, begin_s + cue.start_s)
        slot.wait(slot.told)
        slot.pause()
        begin_s += LENGTH_S + 100.0
    assert [told for told in ear.told if told[0].startswith("step")] == [(f"step {n}", LENGTH_S) for n in range(8)]
    assert [what for what, _ in ear.told if not what.startswith("step")] == ["idle", "busy"] * 8


def test_whoever_does_not_wait_says_nothing():
    slot, ear = idling()
    slot.begin(0, 100.0)
    for mark, cue in enumerate(CUES):
        slot.reach(mark, 100.0 + cue.start_s)
    slot.pause()
    assert ear.told == [("step 0", 8.0)]


def test_what_is_on_its_way_is_foreseen_by_how_long_it_took_of_late():
    slot, ear = idling()
    for step, lead_s in enumerate((0.25, 0.5)):
        slot.begin(step, 100.0 * (step + 1))
        slot.wait(0)
        slot.foresee(0, 100.0 * (step + 1) + 2.0)
        slot.reach(0, 100.0 * (step + 1) + 2.0 + lead_s)
    slot.begin(2, 300.0)
    slot.wait(0)
    slot.foresee(0, 304.0)
    assert ear.foreseen()[-1] == 304.25


def test_what_was_on_its_way_before_the_slot_waits_is_told_at_once():
    """A listener that heard first of an input still to come would take the slot for longer than it is idle."""
    slot, ear = idling()
    slot.begin(0, 100.0)
    slot.wait(0, 101.0)
    slot.reach(0, 101.5)
    slot.begin(1, 200.0)
    slot.wait(0, 203.0)
    assert ear.told[-1] == ("idle", 203.5)
    slot.reach(0, 203.25)
    slot.begin(2, 300.0)
    slot.wait(0)
    slot.foresee(0, 304.0)
    assert ear.foreseen()[-1] == 304.25
