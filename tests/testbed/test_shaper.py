"""Whole stories on a clock of numbers."""

import random

import pytest

from geotrain.testbed.shaper import Lane, Line, Shaper


def arrivals(shaper: Shaper, until: float = 1e9) -> list[tuple[float, object]]:
    """When what arrives."""
    log = []
    while (at := shaper.next_at()) <= until:
        log += [(round(at, 6), packet) for _, packet in shaper.due(at)]
    return log


def test_a_packet_takes_its_size_over_the_rate_and_then_the_delay():
    shaper, lane = Shaper(), Lane(line=Line(name=("a", "b"), delay_s=0.02), rate=1000)
    for number in range(3):
        shaper.push(1.0, lane, 100, 1, number)
    assert arrivals(shaper) == [(1.12, 0), (1.22, 1), (1.32, 2)]
    assert shaper.held_bytes == 0


def test_lanes_do_not_wait_for_each_other():
    shaper, line = Shaper(), Line(name=("a", "b"), delay_s=0.0)
    first, second = Lane(line=line, rate=1000), Lane(line=line, rate=500)
    shaper.push(0.0, first, 100, 1, "first")
    shaper.push(0.0, second, 100, 1, "second")
    assert arrivals(shaper) == [(0.1, "first"), (0.2, "second")]


def test_a_full_queue_drops_and_counts():
    shaper, lane = Shaper(), Lane(line=Line(name=("a", "b"), delay_s=0.0), rate=1000, queue_s=0.15)
    for number in range(5):
        shaper.push(0.0, lane, 100, 7, number)
    assert [packet for _, packet in arrivals(shaper)] == [0, 1]
    assert (lane.line.counters.dropped, lane.line.counters.packets, lane.line.counters.bytes) == (21, 14, 200)


def test_who_wakes_up_late_loses_no_bandwidth():
    shaper, lane = Shaper(), Lane(line=Line(name=("a", "b"), delay_s=0.0, capacity=1000))
    for number in range(10):
        shaper.push(0.0, lane, 100, 1, number)
    assert [packet for _, packet in shaper.due(5.0)] == list(range(10))
    assert lane.line.free_at == pytest.approx(1.0)


def test_lanes_share_the_capacity_of_their_line_fairly_whatever_they_ask_for():
    shaper, line = Shaper(), Line(name=("a", "b"), delay_s=0.0, capacity=1000, queue_bytes=1e6)
    greedy, modest, small = Lane(line=line), Lane(line=line), Lane(line=line)
    for number in range(400):
        shaper.push(0.0, greedy, 100, 1, "greedy")
        if number < 200:
            shaper.push(0.0, modest, 50, 1, "modest")
            shaper.push(0.0, small, 10, 1, "small")
    got = [packet for _, packet in arrivals(shaper, until=5.0)]
    sizes = {"greedy": 100 * got.count("greedy"), "modest": 50 * got.count("modest"), "small": 10 * got.count("small")}
    assert sizes == pytest.approx({"greedy": 1667, "modest": 1667, "small": 1667}, abs=110)


def test_acknowledgements_overtake_and_use_bandwidth():
    shaper, lane = Shaper(), Lane(line=Line(name=("a", "b"), delay_s=0.02), rate=1000)
    shaper.push(0.0, lane, 100, 1, "data")
    shaper.overtake(0.0, lane, 10, "ack")
    shaper.push(0.0, lane, 100, 1, "more")
    assert arrivals(shaper) == [(0.02, "ack"), (0.12, "data"), (0.23, "more")]


def test_a_cut_swallows_what_is_under_way_too():
    shaper, line = Shaper(), Line(name=("a", "b"), delay_s=1.0)
    lane = Lane(line=line)
    shaper.push(0.0, lane, 100, 1, "under way")
    line.cut = True
    shaper.push(0.1, lane, 100, 1, "refused")
    assert arrivals(shaper) == []
    line.cut = False
    shaper.push(3.0, lane, 100, 1, "healed")
    assert arrivals(shaper) == [(4.0, "healed")]
    assert line.counters.dropped == 2


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.5])
def test_losses_are_as_far_apart_as_they_should_be(loss: float):
    line = Line(name=("a", "b"), delay_s=0.0, loss=loss, luck=random.Random(1))
    gaps = [line.draw() for _ in range(20000)]
    assert min(gaps) == 1
    assert sum(gaps) / len(gaps) == pytest.approx(1 / loss, rel=0.03)


def test_no_loss_and_nothing_but_loss():
    assert Line(name=("a", "b"), delay_s=0.0).until_loss > 1e15
    assert Line(name=("a", "b"), delay_s=0.0, loss=1.0).draw() == 1
