"""Layers over stages: never worse than any other way to cut them, never over a stage's memory."""

from hypothesis import given
from hypothesis import strategies as st

from geotrain.planner.partition import Load, every_partition, partition

loads = st.lists(
    st.builds(Load, base_s=st.integers(0, 3), layer_s=st.integers(1, 4), most_layers=st.integers(0, 6)),
    min_size=1,
    max_size=4,
)


@given(st.integers(1, 9), loads)
def test_the_longest_stage_is_as_short_as_can_be(num_layers: int, stages: list[Load]) -> None:
    def longest(layers: tuple[int, ...]) -> float:
        return max(load.seconds(n) for load, n in zip(stages, layers, strict=True))

    ways = list(every_partition(num_layers, stages))
    found = partition(num_layers, stages)
    if found is None:
        assert not ways
    else:
        assert found in ways
        assert longest(found) == min(map(longest, ways))


def test_a_faster_gpu_takes_more_layers() -> None:
    slow, fast = (Load(base_s=0.0, layer_s=s, most_layers=99) for s in (3.0, 1.0))
    assert partition(8, [slow, fast]) == (2, 6)


def test_little_memory_takes_fewer() -> None:
    small, large = (Load(base_s=0.0, layer_s=1.0, most_layers=n) for n in (1, 99))
    assert partition(8, [small, large]) == (1, 7)
    assert partition(8, [small, small]) is None
