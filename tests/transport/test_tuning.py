"""How many connections auto settles on, for networks given as a rule: rate = min(cap, n x single)."""

from collections.abc import Callable

import pytest

from geotrain.transport.tuning import Tuner

Network = Callable[[float, int], float]


def play(tuner: Tuner, network: Network, start_s: float, busy_s: float, *, step_s: float = 0.01) -> float:
    """Send without a pause; returns the time at the end."""
    now_s = start_s
    while now_s < start_s + busy_s:
        now_s += step_s
        tuner.acknowledged(now_s, int(network(now_s, tuner.lanes) * step_s), True)
    return now_s


def wan(single: float, cap: float) -> Network:
    return lambda now_s, lanes: min(cap, lanes * single)


@pytest.mark.parametrize(
    ("single", "cap", "lanes"),
    [
        pytest.param(36e6, 625e6, 32, id="40 ms, 5 Gbit/s: 17.4 would do"),
        pytest.param(36e6, 36e6, 1, id="one is enough"),
        pytest.param(36e6, 40e6, 2, id="a little more than one"),
        pytest.param(1e6, 1e9, 64, id="as many as allowed"),
    ],
)
def test_it_doubles_while_that_helps(single: float, cap: float, lanes: int):
    tuner = Tuner(64)
    play(tuner, wan(single, cap), 0, 10)
    assert tuner.lanes == lanes


def test_it_finds_enough_for_the_cap_within_seconds():
    tuner = Tuner(64)
    end_s = play(tuner, wan(36e6, 625e6), 0, 6)
    assert tuner.lanes == 32
    play(tuner, wan(36e6, 625e6), end_s, 2)
    assert tuner.rate_bytes_per_s == pytest.approx(625e6, rel=0.01)


def test_it_stays_with_a_limit_that_is_no_power_of_two():
    tuner = Tuner(48)
    play(tuner, wan(1.0e6, 32e6), 0, 10)
    assert tuner.lanes == 32


def test_a_longer_round_trip_gets_more_connections():
    tuner = Tuner(64)
    end_s = play(tuner, wan(100e6, 300e6), 0, 10)
    assert tuner.lanes == 4
    play(tuner, wan(25e6, 300e6), end_s, 10)
    assert tuner.lanes == 16


def test_a_higher_cap_gets_more_connections():
    tuner = Tuner(64)
    end_s = play(tuner, wan(25e6, 100e6), 0, 10)
    assert tuner.lanes == 4
    play(tuner, wan(25e6, 800e6), end_s, 60)
    assert tuner.lanes == 32


def test_new_connections_get_time_to_come_up_to_speed():
    tuner = Tuner(64)
    changed = {"lanes": 1, "at_s": -1.0}

    def slow_start(now_s: float, lanes: int) -> float:
        if lanes != changed["lanes"]:
            changed.update(lanes=lanes, at_s=now_s)
        up_to_speed = now_s - changed["at_s"] > 0.45
        return min(800e6, 100e6 * (lanes if up_to_speed else lanes / 2))

    play(tuner, slow_start, 0, 10)
    assert tuner.lanes == 8


def test_pauses_are_not_measured():
    tuner = Tuner(64)
    now_s = 0.0
    for _ in range(200):
        # A transfer of 100 ms at 100 MB/s however many connections, then a pause of a second.
        for piece in range(10):
            now_s += 0.01
            tuner.acknowledged(now_s, 1_000_000, piece < 9)
        now_s += 1.0
    assert tuner.lanes == 1
    assert tuner.rate_bytes_per_s == pytest.approx(100e6, rel=0.01)
