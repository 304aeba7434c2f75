from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.tokens import Batches, Dataset, Manifest
from geotrain.tokens.batches import shuffled

LAYOUTS = [shape for shape in product([1, 2, 3, 4, 6, 12], repeat=3) if prod(shape) == 12]
"""Samples per microbatch, microbatches, pipelines: all with the same global batch."""


def counting(num_tokens: int) -> Dataset:
    """Tokens 0, 1, 2, ...: a window is known by its first one."""
    manifest = Manifest(
        format=1,
        dtype="uint32",
        num_tokens=num_tokens,
        num_documents=1,
        vocab_size=num_tokens,
        end_id=0,
        tokens_sha256="0" * 64,
        tokenizer_sha256="0" * 64,
    )
    return Dataset(directory=Path("data"), manifest=manifest, tokens=np.arange(num_tokens, dtype=np.uint32))


def batches(num_tokens: int, **changes: int) -> Batches:
    usual = {"sequence": 4, "microbatch": 2, "microbatches": 3, "pipelines": 2, "seed": 7}
    return Batches(counting(num_tokens), **(usual | changes))


def firsts(batches: Batches, step: int) -> list[int]:
    """The first token of every sample of a step."""
    return [
        int(row[0])
        for microbatch in range(batches.microbatches)
        for pipeline in range(batches.pipelines)
        for row in batches.batch(step, pipeline, microbatch)[0]
    ]


@given(size=st.integers(1, 300), key=st.text(max_size=9))
def test_a_shuffle_is_a_permutation(size: int, key: str):
    assert sorted(shuffled(place, size, key=key) for place in range(size)) == list(range(size))


@given(size=st.integers(1, 1 << 48), data=st.data())
def test_large_shuffles_stay_inside_and_keep_places_apart(size: int, data: st.DataObject):
    places = data.draw(st.sets(st.integers(0, size - 1), max_size=9))
    gone = {shuffled(place, size, key="k") for place in places}
    assert len(gone) == len(places)
    assert all(0 <= place < size for place in gone)


def test_the_order_never_changes_for_checkpoints_rely_on_it():
    assert [shuffled(place, 10, key="0 0") for place in range(10)] == [4, 0, 7, 8, 9, 2, 1, 5, 6, 3]
    assert shuffled(123_456_789, 10**12, key="7 3") == 170_059_902_500


def test_every_place_is_about_equally_likely():
    counts = np.zeros((8, 8), dtype=int)
    for key in range(2000):
        for place in range(8):
            counts[place, shuffled(place, 8, key=str(key))] += 1
    assert counts.min() > 180 and counts.max() < 330


@given(
    num_windows=st.integers(1, 60),
    rest=st.integers(1, 4),
    microbatch=st.integers(1, 3),
    microbatches=st.integers(1, 3),
    pipelines=st.integers(1, 3),
    seed=st.integers(),
)
def test_every_window_comes_once_per_epoch(
    num_windows: int, rest: int, microbatch: int, microbatches: int, pipelines: int, seed: int
):
    shape = {"microbatch": microbatch, "microbatches": microbatches, "pipelines": pipelines}
    data = batches(num_windows * 4 + rest, seed=seed, **shape)
    steps = -(-2 * num_windows // data.global_batch)
    seen = [first // 4 for step in range(steps) for first in firsts(data, step)]
    assert sorted(seen[:num_windows]) == list(range(num_windows))
    assert sorted(seen[num_windows : 2 * num_windows]) == list(range(num_windows))


def test_epochs_and_seeds_have_orders_of_their_own():
    data = batches(401, microbatch=10, microbatches=10, pipelines=1)
    orders = [firsts(data, 0), firsts(data, 1), firsts(replace(data, seed=8), 0)]
    assert [sorted(order) for order in orders] == [list(range(0, 400, 4))] * 3
    assert len({tuple(order) for order in [*orders, sorted(orders[0])]}) == 4


@given(
    layouts=st.lists(st.sampled_from(LAYOUTS), min_size=2, max_size=2),
    num_tokens=st.integers(5, 300),
    step=st.integers(0, 10**9),
)
def test_another_layout_sees_the_same_samples_in_every_step(
    layouts: list[tuple[int, int, int]], num_tokens: int, step: int
):
    one, other = (
        batches(num_tokens, microbatch=microbatch, microbatches=microbatches, pipelines=pipelines)
        for microbatch, microbatches, pipelines in layouts
    )
    assert sorted(firsts(one, step)) == sorted(firsts(other, step))


@given(step=st.integers(0, 30), num_tokens=st.integers(5, 300))
def test_a_step_is_known_without_those_before_it(step: int, num_tokens: int):
    data = batches(num_tokens)
    told = [int(data.sample(number)[0]) for number in range((step + 1) * data.global_batch)]
    assert firsts(batches(num_tokens), step) == told[step * data.global_batch :]


def test_targets_are_the_tokens_after_the_inputs():
    inputs, targets = batches(1000).batch(5, 1, 2)
    assert (inputs.shape, targets.shape, {inputs.dtype, targets.dtype}) == ((2, 4), (2, 4), {np.dtype(np.int64)})
    assert (targets == inputs + 1).all()
    assert inputs.flags.c_contiguous and targets.flags.c_contiguous and inputs.flags.writeable


def test_what_cannot_be_cut_into_batches_is_one_sentence():
    with pytest.raises(InputError) as caught:
        batches(4)
    assert str(caught.value) == "data: has 4 tokens, too few for one sequence of 4 and the token after it"
    with pytest.raises(InputError, match="microbatches is 0 and must be at least 1"):
        batches(400, microbatches=0)
