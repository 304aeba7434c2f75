"""Where stages go: every way for a few data centers, sensible ways for many, twins never twice."""

import itertools

import pytest

from geotrain.planner.placement import placements


def near(a: int, b: int) -> float:
    """Data centers on a line."""
    return abs(a - b)


def test_two_data_centers_in_every_order_and_split() -> None:
    assert set(placements(3, [2, 2], [near], [[], []])) == {
        ((0, 2), (1, 1)),
        ((0, 1), (1, 2)),
        ((1, 2), (0, 1)),
        ((1, 1), (0, 2)),
    }


def test_twins_come_in_order() -> None:
    assert list(placements(4, [2, 2], [near], [[], [0]])) == [((0, 2), (1, 2))]
    assert list(placements(1, [2, 2], [near], [[], [0]])) == [((0, 1),)]


def test_no_room_no_placement() -> None:
    assert list(placements(5, [2, 2], [near], [[], []])) == []


@pytest.mark.parametrize("room", [[3] * 8, [5, 1, 4, 2, 3, 3, 1, 6]])
def test_many_data_centers_are_visited_along_the_line(room: list[int]) -> None:
    found = list(placements(12, room, [near], [[] for _ in room]))
    assert found
    for placement in found:
        assert sum(stages for _, stages in placement) == 12
        assert all(1 <= stages <= room[dc] for dc, stages in placement)
        assert len({dc for dc, _ in placement}) == len(placement)
    shortest = min(sum(near(a, b) for (a, _), (b, _) in itertools.pairwise(p)) for p in found)
    assert shortest <= 4


def test_the_shortest_ways_by_every_measure_are_tried() -> None:
    """Four on a line, the other way round by the second measure: 0, 2, 1, 3."""
    place = {0: 0, 2: 1, 1: 2, 3: 3}
    measures = [near, lambda a, b: abs(place[a] - place[b])]
    orders = {tuple(dc for dc, _ in p) for p in placements(4, [1] * 4, measures, [[] for _ in range(4)])}
    assert {(0, 1, 2, 3), (0, 2, 1, 3)} <= orders
    assert len(orders) < 24
