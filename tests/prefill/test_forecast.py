"""What is expected of the next step's windows, and how far to keep away from their ends."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.prefill.forecast import Forecast
from tests.prefill.parts import cell

CELL = cell([(-0.2, 0.1), (0.3, 0.6)], [(0.0, 0.5)])


def forecast(**more: float) -> Forecast:
    return Forecast(CELL, **{"guard_s": 0.01, "quantile": 0.75} | more)


def test_before_anything_is_known_it_is_the_plan_less_the_guard() -> None:
    expected = forecast()
    assert (expected.begin_s, expected.step_s) == (0.0, 1.0)
    assert expected.start_s.tolist() == CELL.start_s.tolist()
    assert expected.usable_end_s == pytest.approx(CELL.end_s - 0.01)
    assert CELL.end_s.tolist() == [0.1, 0.6, 0.5]
    assert forecast(fill=0.5, guard_s=0.0).usable_end_s == pytest.approx([-0.05, 0.45, 0.25])


def test_it_follows_what_steps_do_without_touching_the_plan() -> None:
    expected = forecast()
    for _ in range(60):
        expected.learn(CELL.start_s + 0.02, CELL.end_s + 0.03, np.array([0.1, math.nan, 0.2]), 1.1)
    assert expected.start_s == pytest.approx(CELL.start_s + 0.02, abs=1e-6)
    assert expected.end_s == pytest.approx(CELL.end_s + 0.03, abs=1e-6)
    assert expected.lead_s == pytest.approx([0.1, math.nan, 0.2], nan_ok=True)
    assert expected.step_s == pytest.approx(1.1, abs=1e-6)
    assert CELL.end_s.tolist() == [0.1, 0.6, 0.5]
    expected.beacon(7.0)
    assert expected.begin_s == 7.0
    assert expected.usable_end_s == pytest.approx(CELL.end_s + 0.02, abs=1e-6)


def test_what_changes_much_is_believed_at_once_unless_prefill_was_the_cause() -> None:
    slower = CELL.start_s * 2, CELL.end_s * 2, np.array([0.1, math.nan, 0.2]), 2.0
    expected = forecast()
    expected.learn(*slower)
    assert expected.step_s == 2.0
    assert expected.end_s.tolist() == (CELL.end_s * 2).tolist()
    # The next step is as long; only one window in it is not where it was.
    expected.learn(slower[0] + np.array([0.5, 0.1, 0.0]), *slower[1:])
    assert expected.start_s == pytest.approx(slower[0] + np.array([0.5, 0.02, 0.0]))
    disturbed = forecast()
    disturbed.overran(0, True)
    disturbed.learn(*slower)
    disturbed.learn(*slower)
    assert disturbed.step_s == pytest.approx(1.36)
    disturbed.overran(0, True)
    disturbed.learn(CELL.start_s / 2, CELL.end_s / 2, slower[2], 0.5)
    assert disturbed.step_s == 0.5, "what is sooner is not so because of prefill"
    disturbed.learn(*slower)
    disturbed.learn(*slower)
    assert disturbed.step_s == 2.0


def test_news_of_what_a_window_waits_for_tells_its_end() -> None:
    expected = forecast()
    expected.lead_s[0] = 0.25
    # The producer began at 3.0; it had not begun at 4.0; nothing can be seen coming.
    assert expected.end_s_of(0, 2.5, 4.0, 3.0) == pytest.approx(3.25)
    assert expected.end_s_of(0, 2.5, 4.0, None) == pytest.approx(4.25)
    assert expected.end_s_of(1, 2.5, 4.0, None) == expected.planned_end_s(1, 2.5) == pytest.approx(3.1)


@given(early_s=st.lists(st.floats(-0.1, 0.1), min_size=128, max_size=300), quantile=st.floats(0.5, 1.0))
@settings(max_examples=30)
def test_the_guard_covers_that_share_of_the_last_ends(early_s: list[float], quantile: float) -> None:
    expected = forecast(quantile=quantile)
    for each in early_s:
        expected.ended(1, each)
    expected.beacon(1.0)
    assert expected.guard_s[0] == 0.01
    assert expected.guard_s[1] >= 0.01
    covered = np.mean(np.array(early_s[-128:]) <= expected.guard_s[1] + 1e-12)
    assert covered >= math.floor(127 * quantile) / 128
    assert expected.guard_s[1] <= max(0.01, max(early_s[-128:]))


def test_a_slot_that_overruns_again_and_again_backs_off_and_comes_back() -> None:
    expected, guards = forecast(), []
    for happened in [True] * 6 + [False] * 20:
        expected.overran(0, happened)
        expected.beacon(0.0)
        guards.append(expected.guard_s[0])
        assert expected.guard_s[1] == 0.01
        assert expected.usable_end_s[:2] == pytest.approx(CELL.end_s[:2] - guards[-1])
    assert guards[:6] == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.16, 0.16])
    assert guards[6:] == sorted(guards[6:], reverse=True)
    assert guards[-1] == 0.01
