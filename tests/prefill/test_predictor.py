import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.prefill.predictor import PrefillTime

coefficients = st.floats(0, 1e-2, allow_subnormal=False)
tokens = st.integers(1, 200_000)
cached = st.integers(0, 200_000)
times = st.builds(
    PrefillTime, fixed_s=coefficients, per_cached_s=coefficients, per_token_s=coefficients, per_pair_s=coefficients
)


def test_the_form():
    time = PrefillTime(fixed_s=8.0, per_cached_s=0.5, per_token_s=2.0, per_pair_s=0.25)
    assert time.seconds(10) == 8 + 2 * 10 + 0.25 * 100
    assert time.seconds(10, 4) == 8 + 0.5 * 4 + 2 * 10 + 0.25 * (2 * 4 * 10 + 100)


@given(time=times, new=tokens, before=cached, more=tokens)
def test_more_tokens_never_take_less_time(time: PrefillTime, new: int, before: int, more: int):
    assert 0 <= time.seconds(new, before) <= time.seconds(new + more, before)
    assert time.seconds(new, before) <= time.seconds(new, before + more)


@given(time=times, new=tokens, before=cached, most=st.integers(100, 100_000))
def test_chunks_are_the_prompt_in_order(time: PrefillTime, new: int, before: int, most: int):
    cut = time.chunks(new, before, most)
    assert all(0 < size <= most for size, _ in cut)
    assert [seen for _, seen in cut] == [before + sum(size for size, _ in cut[:index]) for index in range(len(cut))]
    assert sum(size for size, _ in cut) == new


@given(time=times, new=tokens, before=cached, most=st.integers(100, 100_000))
def test_chunks_take_as_long_as_the_whole_but_for_what_each_pass_costs(
    time: PrefillTime, new: int, before: int, most: int
):
    cut = time.chunks(new, before, most)
    each = len(cut) * time.fixed_s + time.per_cached_s * sum(seen for _, seen in cut)
    once = time.per_token_s * new + time.per_pair_s * (2 * before * new + new**2)
    assert sum(time.seconds(*chunk) for chunk in cut) == pytest.approx(each + once)


def test_chunks_get_shorter_as_tokens_take_longer():
    time = PrefillTime(fixed_s=1e-3, per_token_s=1e-4, per_pair_s=1e-9)
    cut = time.chunks(200_000, 0, 1000)
    assert [size for size, _ in cut] == sorted((size for size, _ in cut), reverse=True)
    assert cut[0] == (1000, 0) and cut[-1][0] == 250
    assert max(time.seconds(*chunk) for chunk in cut) <= 1.5 * time.seconds(1000)
    slow = PrefillTime(per_cached_s=1.0, per_token_s=1e-6)
    assert [size for size, _ in slow.chunks(3000, 100_000, 1000)] == [125] * 24, "an eighth at least"


@given(time=times, points=st.lists(st.tuples(tokens, cached), min_size=1, max_size=5))
def test_a_batch_pays_what_is_fixed_once(time: PrefillTime, points: list[tuple[int, int]]):
    alone_s = sum(time.seconds(*point) for point in points)
    assert time.batch(points) == pytest.approx(alone_s - (len(points) - 1) * time.fixed_s, abs=1e-9)


def test_no_batch_takes_no_time():
    assert PrefillTime(fixed_s=1.0).batch([]) == 0


@given(time=times, new=tokens, before=cached)
def test_the_stages_of_a_pipeline_take_the_whole_time_together(time: PrefillTime, new: int, before: int):
    stages_s = [time.share(layers, 32).seconds(new, before) for layers in (9, 8, 8, 7)]
    assert sum(stages_s) == pytest.approx(time.seconds(new, before))


def test_factors_lie_on_lines_between_their_quantiles():
    time = PrefillTime(spread=((0.25, 0.9), (0.5, 1.0), (0.9, 1.2)))
    found = [time.factor(quantile) for quantile in (0.0, 0.25, 0.375, 0.5, 0.7, 0.9, 0.99, 1.0)]
    assert found == pytest.approx([0.9, 0.9, 0.95, 1.0, 1.1, 1.2, 1.2, 1.2])
    assert time.share(1, 2).spread == time.spread
    assert PrefillTime().factor(0.99) == 1
