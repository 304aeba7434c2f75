"""Who is next: fair shares between flows, order inside one, and nobody forgotten."""

import math
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geotrain.prefill.queue import FairQueue, Waiting
from geotrain.prefill.request import Request

Flow = tuple[str, int]
WORKS = st.integers(1, 40).map(lambda tenths: tenths / 10)
FLOWS = st.tuples(st.sampled_from("abcd"), st.integers(0, 2))


def waiting(number: int, tenant: str, work_s: float = 1.0, priority: int = 0) -> Waiting:
    request = Request(id=number, arrival_s=0.0, input_tokens=1, tenant=tenant, priority=priority)
    return Waiting(request=request, work_s=work_s, deadline_s=9.0)


def take_all(queue: FairQueue) -> list[Waiting]:
    return [queue.take() for _ in range(len(queue))]


@given(works=st.lists(st.tuples(WORKS, WORKS), min_size=20, max_size=60), order=st.randoms())
@settings(max_examples=50)
def test_two_tenants_with_enough_to_do_get_the_same(works: list[tuple[float, float]], order) -> None:
    queue = FairQueue()
    arrivals = [waiting(n, "ab"[n % 2], works[n // 2][n % 2]) for n in range(2 * len(works))]
    order.shuffle(arrivals)
    for each in arrivals:
        queue.add(each)
    left, had = Counter(each.request.tenant for each in arrivals), defaultdict[str, float](float)
    while min(left.values()):
        taken = queue.take()
        left[taken.request.tenant] -= 1
        had[taken.request.tenant] += taken.work_s
        # Neither is ahead by more than what it is at, and the other at.
        assert abs(had["a"] - had["b"]) <= 4.0 + 1e-9


def test_of_equal_requests_nobody_is_ahead_by_more_than_one() -> None:
    queue = FairQueue()
    for n in range(300):
        queue.add(waiting(n, "a" if n < 200 else "b"))
    had = Counter[str]()
    for _ in range(200):
        had[queue.take().request.tenant] += 1
        assert abs(had["a"] - had["b"]) <= 1


@pytest.mark.parametrize("high", [1, 2, 5])
def test_a_priority_weighs_four_times_the_one_below(high: int) -> None:
    queue = FairQueue()
    for n in range(1000):
        queue.add(waiting(n, "a", priority=high - n % 2))
    had = Counter(queue.take().request.priority for _ in range(500))
    assert had[high] == pytest.approx(4 * had[high - 1], abs=4)


@given(works=st.lists(st.tuples(FLOWS, WORKS), max_size=80), takes=st.randoms())
@settings(max_examples=50)
def test_inside_a_flow_first_come_first_served_and_all_are_served(works: list[tuple[Flow, float]], takes) -> None:
    queue, taken = FairQueue(), []
    for n, ((tenant, priority), work_s) in enumerate(works):
        queue.add(waiting(n, tenant, work_s, priority))
        if takes.random() < 0.5:
            first = queue.first()
            taken.append(queue.take())
            assert taken[-1] is first
        held = sum(each.work_s for _, _, each in queue._entries)
        assert queue.work_s == pytest.approx(held, abs=1e-9)
    taken += take_all(queue)
    assert sorted(each.request.id for each in taken) == list(range(len(works)))
    assert queue.work_s == 0
    of_flow = defaultdict[Flow, list[int]](list)
    for each in taken:
        of_flow[each.request.tenant, each.request.priority].append(each.request.id)
    assert all(ids == sorted(ids) for ids in of_flow.values())


@given(works=st.lists(WORKS, max_size=9), priority=st.integers(0, 2), newcomer=WORKS, higher=st.integers(0, 2))
@settings(max_examples=30)
def test_nobody_starves_behind_strangers_that_never_end(works, priority, newcomer, higher) -> None:
    """There are always twenty or so, each a tenant of its own."""
    queue = FairQueue()
    for n, work_s in enumerate([*works, 1.0]):
        queue.add(waiting(n, "patient", work_s, priority))
    rounds = (sum(works) + 1) / 4**priority / (newcomer / 4 ** (priority + higher)) + 1
    for n in range(10):
        queue.add(waiting(100 + n, f"stranger {n}", newcomer, priority + higher))
    for n in range(math.ceil(20 * rounds)):
        if queue.take().request.id == len(works):
            return
        queue.add(waiting(1000 + n, f"stranger {1000 + n}", newcomer, priority + higher))
    pytest.fail("starved")


def test_who_was_away_gets_no_credit_for_it() -> None:
    queue = FairQueue()
    for n in range(100):
        queue.add(waiting(n, "a"))
    for _ in range(50):
        queue.take()
    for n in range(50):
        queue.add(waiting(1000 + n, "b"))
    had = Counter(queue.take().request.tenant for _ in range(40))
    assert abs(had["a"] - had["b"]) <= 1


@given(works=st.lists(FLOWS, max_size=40), flow=FLOWS, taken=st.integers(0, 10))
@settings(max_examples=50)
def test_work_ahead_is_exact_where_all_are_equally_long(works: list[Flow], flow: Flow, taken: int) -> None:
    queue = FairQueue()
    for n, (tenant, priority) in enumerate(works):
        queue.add(waiting(n, tenant, 2.0, priority))
    for _ in range(min(taken, len(works))):
        queue.take()
    mine = waiting(-1, flow[0], 2.0, flow[1])
    ahead_s = queue.work_ahead_s(mine.request, 2.0)
    queue.add(mine)
    order = [each.request.id for each in take_all(queue)]
    assert ahead_s == pytest.approx(2.0 * order.index(-1))


def test_who_leaves_is_gone_and_the_others_are_not() -> None:
    queue = FairQueue()
    for n in range(6):
        queue.add(waiting(n, "ab"[n % 2], 1.0 + n))
    assert queue.remove(9) is None
    gone = queue.remove(2)
    assert gone is not None and gone.request.id == 2
    assert queue.remove(2) is None
    assert len(queue) == 5 and queue.work_s == pytest.approx(1 + 2 + 4 + 5 + 6)
    assert sorted(each.request.id for each in take_all(queue)) == [0, 1, 3, 4, 5]
    assert queue.work_s == 0


@pytest.mark.parametrize("backlog", [0, 50])
@pytest.mark.parametrize("cancelled", [False, True], ids=["served", "cancelled"])
def test_ten_thousand_tenants_leave_no_trace(backlog: int, cancelled: bool) -> None:
    queue = FairQueue()
    for n in range(backlog):
        queue.add(waiting(-1 - n, "regular"))
    for n in range(10_000):
        queue.add(waiting(n, f"tenant {n}", 0.3))
        if cancelled and n % 2:
            assert queue.remove(n) is not None
        else:
            queue.take()
    assert len(queue._flow_end) <= 1024 + 2 * backlog + 2
