import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.prefill.request import Request
from geotrain.prefill.trace import Trace
from geotrain.reports.live import Blocks
from tests.reports.live.sample import BLOCKS, side, spans


def test_a_trace_gets_pauses():
    requests = tuple(Request(id=n, arrival_s=float(n), input_tokens=1) for n in range(9))
    paused = BLOCKS.paused(Trace(name="even", requests=requests))
    assert [one.arrival_s for one in paused.requests] == [0.0, 1.0, 4.0, 5.0]
    assert BLOCKS.duration_s == 8.0


def test_steps_are_under_load_if_all_of_them_is():
    edges_s = np.array([-1.0, 0.0, 1.0, 2.0, 3.5, 4.0, 5.5, 6.5, 8.0, 9.0])
    assert BLOCKS.loaded(edges_s).tolist() == [False, True, True, False, False, True, False, False, False]


@given(st.lists(st.floats(0.01, 5.0), min_size=1, max_size=30), st.floats(0.5, 5.0), st.floats(0.0, 5.0))
def test_no_step_under_load_reaches_into_a_pause(lengths_s: list[float], on_s: float, off_s: float):
    blocks = Blocks(on_s=on_s, off_s=off_s, rounds=3)
    edges_s = np.cumsum([-2.0, *lengths_s])
    begins_s = np.arange(3) * (on_s + off_s)
    for start_s, end_s in zip(edges_s[:-1][blocks.loaded(edges_s)], edges_s[1:][blocks.loaded(edges_s)], strict=True):
        assert any(start_s >= begin_s - 1e-9 and end_s <= begin_s + on_s + 1e-9 for begin_s in begins_s)


def test_busy_before_and_after():
    ours = side()
    assert (int(ours.quiet.sum()), int(ours.loaded.sum())) == (6, 4)
    assert (ours.before, ours.after) == pytest.approx((0.5, 0.75))
    assert (ours.ttft(0.5), ours.turned_away, ours.arrivals) == (0.2, 0.25, 4)


def slowed(*slower: float) -> tuple[float, float]:
    """Rounds of four seconds: two steps under load that are so much longer than the two quiet ones behind them."""
    lengths_s = np.array([2 * part / (2 + more) for more in slower for part in (1 + more, 1 + more, 1, 1)])
    edges_s = np.append(0.0, np.cumsum(lengths_s))
    busy = spans(*((0, edges_s[at] + 0.1, edges_s[at] + 0.2) for at in range(len(lengths_s)) if at % 4 < 2))
    blocks = Blocks(on_s=2.2, off_s=1.8, rounds=len(slower))
    return side(blocks=blocks, edges_s=edges_s, training_s=np.ones(len(lengths_s)), prefill=busy).slowdown


def test_slowdown_is_that_of_each_round_and_has_a_margin():
    assert slowed(0.05, 0.05, 0.05) == pytest.approx((0.05, 0.0))
    # Quiet steps before the second round count too: they take 1 s, those behind it 1 / 1.05.
    second = 1.1 / 1.05 / ((1 + 1 / 1.05) / 2) - 1
    assert slowed(0.0, 0.1) == pytest.approx((second / 2, 12.7 * second / 2))
    assert np.isnan(slowed(0.1)).all()


def test_without_load_there_is_no_slowdown_to_tell():
    ours = side(blocks=Blocks(on_s=0.5, off_s=1.0, rounds=1), prefill=spans(), ttft_s=np.zeros(0), rejected=0)
    assert np.isnan([*ours.slowdown, ours.after, ours.ttft(0.5), ours.turned_away]).all()
    assert ours.before == 0.5
