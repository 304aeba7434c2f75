"""A crowd that is told when to come back comes at the rate at which it can be served."""

import heapq

import pytest

from geotrain.serving.outside import Outside


@pytest.mark.parametrize(("clients", "served_rps"), [(1000, 20.0), (200, 5.0), (30, 10.0)])
def test_a_crowd_comes_back_at_about_the_rate_that_is_served(clients: int, served_rps: float):
    outside = Outside()
    arrivals = [(number / 200.0, number) for number in range(clients)]
    heapq.heapify(arrivals)
    credit, last_s, asked_late, taken_late = 0.0, 0.0, 0, 0
    while arrivals[0][0] < 300.0:
        now_s, client = heapq.heappop(arrivals)
        credit, last_s = min(served_rps, credit + served_rps * (now_s - last_s)), now_s
        taken = credit >= 1.0
        if now_s > 150.0:
            asked_late, taken_late = asked_late + 1, taken_late + taken
        if taken:
            credit -= 1.0
            outside.taken(now_s)
            heapq.heappush(arrivals, (now_s + 2.0, client))
        else:
            heapq.heappush(arrivals, (now_s + outside.turned_away(now_s, 1.0, 0.8 * served_rps), client))
    assert taken_late > 0.7 * min(served_rps, clients / 3.0) * 150.0
    assert asked_late < 3.0 * taken_late


def test_who_is_alone_comes_back_soon():
    outside = Outside()
    assert 0.75 <= outside.turned_away(100.0, 1.0, 5.0) <= 1.25


def test_a_service_that_turns_nobody_away_remembers_no_more_for_it():
    outside = Outside()
    for number in range(100_000):
        outside.taken(number / 10)
    assert len(outside._taken_s) == 101
