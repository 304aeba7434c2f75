import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.network import max_min_rates

rates = st.floats(1e-3, 1e9)
flows = st.lists(st.tuples(st.one_of(rates, st.just(np.inf)), st.integers(1, 8)), min_size=1, max_size=12)


def shared(capacity: float, flows: list[tuple[float, int]]):
    """Rate of each pair, its cap and the number of pairs, as arrays."""
    caps = np.array([cap for cap, _ in flows], dtype=np.float64)
    pairs = np.array([number for _, number in flows], dtype=np.int64)
    return max_min_rates(capacity, caps, pairs), caps, pairs


@pytest.mark.parametrize(
    ("capacity", "flows", "expected"),
    [
        pytest.param(12, [(9, 1), (9, 1), (9, 1)], [4, 4, 4], id="equal"),
        pytest.param(10, [(1, 1), (4, 1), (20, 1)], [1, 4, 5], id="small-ones-leave-the-rest"),
        pytest.param(10, [(20, 1), (4, 1), (1, 1)], [5, 4, 1], id="in-any-order"),
        pytest.param(100, [(1, 1), (4, 1), (20, 1)], [1, 4, 20], id="enough-for-all"),
        pytest.param(12, [(9, 1), (9, 3)], [3, 3], id="every-pair-counts"),
        pytest.param(10, [(1, 4), (np.inf, 2)], [1, 3], id="unlimited-takes-what-is-left"),
    ],
)
def test_small_flows_get_what_they_can_use_and_the_others_share_equally(
    capacity: float, flows: list[tuple[float, int]], expected: list[float]
):
    assert shared(capacity, flows)[0].tolist() == expected


def test_nobody_is_served_nothing():
    assert shared(5.0, [])[0].tolist() == []


@given(rates, flows)
def test_nobody_gets_more_than_it_can_use_nor_all_together_more_than_there_is(capacity, flows):
    got, caps, pairs = shared(capacity, flows)
    assert (got <= caps).all()
    assert (got > 0).all()
    assert (got * pairs).sum() <= capacity * (1 + 1e-9)


@given(rates, flows)
def test_either_all_capacity_is_used_or_everybody_has_enough(capacity, flows):
    got, caps, pairs = shared(capacity, flows)
    assert (got == caps).all() or (got * pairs).sum() == pytest.approx(capacity)


@given(rates, flows)
def test_those_who_could_use_more_get_equal_shares_and_the_largest(capacity, flows):
    got, caps, _ = shared(capacity, flows)
    wanting = got < caps
    if wanting.any():
        share = got[wanting].max()
        assert got[wanting] == pytest.approx(share)
        assert (got <= share * (1 + 1e-9)).all()


@given(rates, flows, st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(capacity, flows, random):
    order = list(range(len(flows)))
    random.shuffle(order)
    straight, shuffled = shared(capacity, flows)[0], shared(capacity, [flows[i] for i in order])[0]
    assert shuffled == pytest.approx(straight[order])
